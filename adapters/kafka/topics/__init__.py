"""Topics read up to fixed ends: their tables, and the last row of each key."""
