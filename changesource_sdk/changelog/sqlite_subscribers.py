"""Acknowledgements in SQLite.

Losing the newest ones in a power cut is harmless, since they only delay pruning; so writes here are not synced one by
one.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.sqlite_file import translated
from changesource_sdk.changelog.subscribers import Subscriber, SubscriberKey

_TABLE = """CREATE TABLE IF NOT EXISTS subscribers (
  app_id TEXT NOT NULL,
  shard INTEGER NOT NULL,
  replica_version TEXT NOT NULL,
  acknowledged TEXT NOT NULL,
  seen_ms REAL NOT NULL,
  PRIMARY KEY (app_id, shard, replica_version)
) STRICT, WITHOUT ROWID"""
_UPSERT = """INSERT INTO subscribers VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET acknowledged = max(acknowledged, excluded.acknowledged), seen_ms = max(seen_ms, excluded.seen_ms)"""


class SqliteSubscribers:
    """`Subscribers` in a file of their own, beside the log. Several endpoints of one host may share it."""

    def __init__(self, state_directory: Path) -> None:
        self._path = StateDirectory(state_directory).subscribers
        self._lock = threading.Lock()
        with translated(self._path):
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(_TABLE)

    def acknowledge(self, key: SubscriberKey, watermark: str, now_ms: float) -> None:
        """The subscriber has everything up to and including `watermark`."""
        with self._lock, translated(self._path):
            row = (key.app_id, key.shard, key.replica_version, watermark, now_ms)
            self._connection.execute(_UPSERT, row)

    def all(self) -> list[Subscriber]:
        """Every subscriber known, in key order."""
        with self._lock, translated(self._path):
            rows = self._connection.execute("SELECT * FROM subscribers").fetchall()
        return [Subscriber(SubscriberKey(app, shard, version), ack, seen) for app, shard, version, ack, seen in rows]

    def forget(self, key: SubscriberKey) -> None:
        """The subscriber will not come back; nothing is kept for it."""
        query = "DELETE FROM subscribers WHERE app_id = ? AND shard = ? AND replica_version = ?"
        with self._lock, translated(self._path):
            self._connection.execute(query, (key.app_id, key.shard, key.replica_version))

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()
