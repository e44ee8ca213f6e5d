"""The synced tables: read from the database, recognised after renames, and compared with an earlier state."""
