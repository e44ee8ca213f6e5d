"""The replica: the upstream's tables in a SQLite file, their versions, and a log of what changed."""
