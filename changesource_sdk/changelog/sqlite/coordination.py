"""How the processes of one host communicate: notes in files, kernel locks, and a table of consumers in SQLite.

The table is in a separate file next to the log, because it must survive a log that is damaged or lost. Acknowledgements
are not synced to disk one by one: losing the newest in a power cut only delays pruning. An issued replica version is
synced before it is used.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager

from changesource_sdk.changelog.coordination.consumers import Consumer, ConsumerKey, next_version, transaction_of
from changesource_sdk.changelog.coordination.contract import LockName, Note, NoteKind
from changesource_sdk.changelog.coordination.notes import FileNotes
from changesource_sdk.changelog.coordination.wakeup import WakeupListener
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.files.lock import compaction_lock, seed_lock, state_lock
from changesource_sdk.changelog.sqlite.connection import translated
from changesource_sdk.changelog.sqlite.wakeup import listen
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
# The newest version with the major number of a transaction: "." follows it, and "/" follows "." in the order of bytes.
_NEWEST = "SELECT max(replica_version) FROM subscribers WHERE replica_version >= ? AND replica_version < ? || '/'"
_LOCKS = {"pipeline": state_lock, "compaction": compaction_lock, "seed": seed_lock}

# Around the opening of a file: while the first connection changes it to WAL, others fail with "database is locked".
_OPENING = threading.Lock()


class SqliteCoordination:
    """A `Coordination` of one host. Several processes may use the same files, each through its own object."""

    def __init__(self, layout: StateDirectory) -> None:
        self._layout = layout
        self._notes = FileNotes(layout)
        self._path = layout.consumers
        self._lock = threading.Lock()  # around every use of the connection
        # To the table of consumers; opened by the first call that needs it.
        self._connection: sqlite3.Connection | None = None

    def leave(self, kind: NoteKind, name: str, note: Note, *, only_higher: bool = False) -> None:
        """Replace the file of a note."""
        self._notes.leave(kind, name, note, only_higher=only_higher)

    def notes(self, kind: NoteKind, name: str | None = None) -> dict[str, Note]:
        """Read the files of notes."""
        return self._notes.notes(kind, name)

    def remove(self, kind: NoteKind, name: str, *, below: str | None = None) -> Note | None:
        """Delete the file of a note."""
        return self._notes.remove(kind, name, below=below)

    def issue(self, app_id: str, shard: int, head: str, held: str, now_ms: float) -> str:
        """Issue a replica version and sync it to disk; calls of other processes wait for SQLite's write lock."""
        with self._lock, translated(self._path):
            connection = self._current()
            connection.execute("PRAGMA synchronous=FULL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                (newest,) = connection.execute(_NEWEST, (transaction_of(head),) * 2).fetchone()
                version = next_version(head, newest or "", int(now_ms * 1000))
                connection.execute(_UPSERT, (app_id, shard, version, held, now_ms))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                connection.execute("PRAGMA synchronous=NORMAL")
        return version

    def acknowledge(self, key: ConsumerKey, watermark: str, now_ms: float) -> None:
        """Insert the consumer's row, or raise its watermark."""
        with self._lock, translated(self._path):
            self._current().execute(_UPSERT, (key.app_id, key.shard, key.replica_version, watermark, now_ms))

    def consumers(self, app_id: str | None = None, shard: int | None = None) -> list[Consumer]:
        """Read the rows in key order."""
        where, parameters = ("", ()) if app_id is None else ("WHERE app_id = ? AND shard = ?", (app_id, shard))
        with self._lock, translated(self._path):
            query = f"SELECT * FROM subscribers {where} ORDER BY 1, 2, 3"
            rows = self._current().execute(query, parameters).fetchall()
        return [Consumer(ConsumerKey(app, number, version), ack, seen) for app, number, version, ack, seen in rows]

    def forget(self, key: ConsumerKey) -> None:
        """Delete the consumer's row."""
        query = "DELETE FROM subscribers WHERE app_id = ? AND shard = ? AND replica_version = ?"
        with self._lock, translated(self._path):
            self._current().execute(query, (key.app_id, key.shard, key.replica_version))

    def _current(self) -> sqlite3.Connection:
        if self._connection is None:
            with _OPENING:
                private_database(self._path)
                self._connection = connect(self._path)
                use_wal(self._connection, "NORMAL")
                self._connection.execute(_TABLE)
        return self._connection

    def lock(self, name: LockName) -> AbstractContextManager[None]:
        """Lock a file of the state directory with `flock`."""
        return _LOCKS[name](self._layout.root)

    def listen(self) -> WakeupListener:
        """Listen on a UDP port of the loopback interface."""
        return listen(self._layout.pokes)

    def close(self) -> None:
        """Close the table of consumers."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
