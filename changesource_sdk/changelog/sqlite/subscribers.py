"""The record of subscribers in SQLite.

Losing the newest acknowledgements in a power cut is harmless, since they only delay pruning; so those writes are not
synced one by one. An issued replica version is synced before it is used.
"""

from __future__ import annotations

import threading
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.sqlite.connection import translated
from changesource_sdk.changelog.subscribers import Subscriber, SubscriberKey, next_version
from service_kit.private_files import private_database
from service_kit.sqlite import connect, use_wal

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
            private_database(self._path)
            self._connection = connect(self._path)
            use_wal(self._connection, "NORMAL")
            self._connection.execute(_TABLE)

    def issue(self, app_id: str, shard: int, head: str, held: str, now_ms: float) -> str:
        """A new replica version, synced to disk; other processes of this host wait meanwhile."""
        with self._lock, translated(self._path):
            self._connection.execute("PRAGMA synchronous=FULL")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                (newest,) = self._connection.execute("SELECT max(replica_version) FROM subscribers").fetchone()
                version = next_version(head, newest or "", int(now_ms * 1000))
                self._connection.execute(_UPSERT, (app_id, shard, version, held, now_ms))
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._connection.execute("PRAGMA synchronous=NORMAL")
        return version

    def acknowledge(self, key: SubscriberKey, watermark: str, now_ms: float) -> None:
        """The subscriber has everything up to and including `watermark`."""
        with self._lock, translated(self._path):
            row = (key.app_id, key.shard, key.replica_version, watermark, now_ms)
            self._connection.execute(_UPSERT, row)

    def all(self) -> list[Subscriber]:
        """Every subscriber known, in key order."""
        return self._read("SELECT * FROM subscribers ORDER BY 1, 2, 3", ())

    def of(self, app_id: str, shard: int) -> list[Subscriber]:
        """The subscribers of one app and shard, in key order."""
        return self._read("SELECT * FROM subscribers WHERE app_id = ? AND shard = ? ORDER BY 3", (app_id, shard))

    def _read(self, query: str, parameters: tuple[object, ...]) -> list[Subscriber]:
        with self._lock, translated(self._path):
            rows = self._connection.execute(query, parameters).fetchall()
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
