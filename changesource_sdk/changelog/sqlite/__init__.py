"""The log of one host, in SQLite."""
