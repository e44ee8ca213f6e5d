"""The embedded default: any SQLite database file, its changes recorded by triggers."""

from adapters.sqlite.adapter import SqliteAdapter

__all__ = ["SqliteAdapter"]
