"""A zero-cache in Python: replicator, SQLite replica, incremental views, view syncer, sync server."""
