"""The replica: the upstream's tables in a SQLite file, row versions, and a change log."""
