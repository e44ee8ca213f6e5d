"""Seeds, measured next to the raw limit of SQLite and to the initial sync of the official zero-cache."""
