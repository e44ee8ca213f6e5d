"""Where the rows of a source are: in memory, or in SQLite tables."""
