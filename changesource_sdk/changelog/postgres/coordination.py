"""How the hosts of a log in Postgres communicate: rows for notes and consumers, advisory locks, notifications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg

from changesource_sdk.changelog.coordination.consumers import Consumer, ConsumerKey, next_version, transaction_of
from changesource_sdk.changelog.coordination.contract import LockName, Note, NoteKind
from changesource_sdk.changelog.coordination.wakeup import WakeupListener
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.files.lock import COMPACTING, SEEDING, state_lock
from changesource_sdk.changelog.postgres.connection import Connection, LogAddress, Session, connect, translated
from changesource_sdk.changelog.postgres.wakeup import listen
from changesource_sdk.errors import StateError

_UPSERT = """INSERT INTO subscribers AS known VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (app_id, shard, replica_version) DO UPDATE
SET acknowledged = greatest(known.acknowledged, excluded.acknowledged),
  seen_ms = greatest(known.seen_ms, excluded.seen_ms)"""
# The newest version with the major number of a transaction. A watermark has no character that LIKE interprets.
_NEWEST = "SELECT max(replica_version) FROM subscribers WHERE replica_version LIKE %s"
_CONSUMERS = "SELECT app_id, shard, replica_version, acknowledged, seen_ms FROM subscribers"
_LEAVE_REPORT = "INSERT INTO reports VALUES (%s, %s) ON CONFLICT (stage) DO UPDATE SET report = excluded.report"
_LEAVE_REQUEST = """INSERT INTO requests AS pending VALUES (%s, %s, %s) ON CONFLICT (kind) DO UPDATE
SET watermark = excluded.watermark, reason = excluded.reason"""
_ONLY_HIGHER = " WHERE pending.watermark < excluded.watermark"
_NOTES = {
    "requests": ("SELECT kind, watermark, reason FROM requests", " WHERE kind = %s"),
    "reports": ("SELECT stage, '', report FROM reports", " WHERE stage = %s"),
}
_REMOVE = {
    "requests": "DELETE FROM requests WHERE kind = %s AND (%s::text IS NULL OR watermark < %s) "
    "RETURNING watermark, reason",
    "reports": "DELETE FROM reports WHERE stage = %s AND (%s::text IS NULL OR '' < %s) RETURNING '', report",
}

_HELD = {
    "compaction": (COMPACTING, "another process compacts this log already"),
    "seed": (SEEDING, "another process makes a seed of this log already"),
}


class PostgresCoordination:
    """A `Coordination` in the log's database: every host sees what any of them wrote."""

    def __init__(self, address: LogAddress, layout: StateDirectory) -> None:
        self._address = address
        self._layout = layout
        # A connection each, so that the lock that `issue` waits for does not delay notes, and requests do not delay
        # reports.
        self._consumers = Session(address)
        self._notes = {"requests": Session(address), "reports": Session(address)}

    def leave(self, kind: NoteKind, name: str, note: Note, *, only_higher: bool = False) -> None:
        """One statement."""
        if kind == "reports":
            self._notes[kind].rows(_LEAVE_REPORT, (name, note.text))
        else:
            query = _LEAVE_REQUEST + (_ONLY_HIGHER if only_higher else "")
            self._notes[kind].rows(query, (name, note.watermark, note.text))

    def notes(self, kind: NoteKind, name: str | None = None) -> dict[str, Note]:
        """One statement."""
        query, of_name = _NOTES[kind]
        rows = self._notes[kind].rows(query) if name is None else self._notes[kind].rows(query + of_name, (name,))
        return {each: Note(watermark, text) for each, watermark, text in rows}

    def remove(self, kind: NoteKind, name: str, *, below: str | None = None) -> Note | None:
        """One statement, so that one of several processes gets the note."""
        rows = self._notes[kind].rows(_REMOVE[kind], (name, below, below))
        return Note(*rows[0]) if rows else None

    def issue(self, app_id: str, shard: int, head: str, held: str, now_ms: float) -> str:
        """Issue a replica version and commit it; calls of other endpoints wait for the table's lock."""

        def take(connection: Connection) -> str:
            with connection.transaction():
                connection.execute("LOCK TABLE subscribers IN SHARE ROW EXCLUSIVE MODE")
                row = connection.execute(_NEWEST, (f"{transaction_of(head)}.%",)).fetchone()
                version = next_version(head, (row and row[0]) or "", int(now_ms * 1000))
                connection.execute(_UPSERT, (app_id, shard, version, held, now_ms))
            return version

        return self._consumers.run(take)

    def acknowledge(self, key: ConsumerKey, watermark: str, now_ms: float) -> None:
        """Insert the consumer's row, or raise its watermark."""
        self._consumers.rows(_UPSERT, (key.app_id, key.shard, key.replica_version, watermark, now_ms))

    def consumers(self, app_id: str | None = None, shard: int | None = None) -> list[Consumer]:
        """Read the rows in key order."""
        if app_id is None:
            rows = self._consumers.rows(f"{_CONSUMERS} ORDER BY 1, 2, 3")
        else:
            rows = self._consumers.rows(f"{_CONSUMERS} WHERE app_id = %s AND shard = %s ORDER BY 3", (app_id, shard))
        return [Consumer(ConsumerKey(app, number, version), ack, seen) for app, number, version, ack, seen in rows]

    def forget(self, key: ConsumerKey) -> None:
        """Delete the consumer's row."""
        query = "DELETE FROM subscribers WHERE app_id = %s AND shard = %s AND replica_version = %s"
        self._consumers.rows(query, (key.app_id, key.shard, key.replica_version))

    @contextmanager
    def lock(self, name: LockName) -> Iterator[None]:
        """Take an advisory lock of a new session; a pipeline also locks its state directory on this host."""
        if name != "pipeline":
            with closing(connect(self._address)) as connection, translated(self._address.where):
                self._try_lock(connection, name)
                yield
        else:
            with state_lock(self._layout.root), closing(connect(self._address)) as connection:
                self._lock_pipeline(connection)
                yield

    def _try_lock(self, connection: Connection, name: LockName) -> None:
        query = "SELECT pg_try_advisory_lock(hashtext(%s))"
        if connection.execute(query, (f"{name}:{self._address.schema}",)).fetchone() != (True,):
            code, message = _HELD[name]
            raise StateError(code, message, self._address.where, "wait until it is done")

    def _lock_pipeline(self, connection: Connection) -> None:
        with translated(self._address.where):
            # The session of a pipeline that was killed may take a moment to end.
            connection.execute("SET lock_timeout = '5s'")
            try:
                connection.execute("SELECT pg_advisory_lock(hashtext(%s))", (f"pipeline:{self._address.schema}",))
            except psycopg.errors.LockNotAvailable:
                raise StateError(
                    "log-in-use",
                    "another pipeline writes this log",
                    where=self._address.where,
                    fix="stop it, run this one with --role endpoint, or give it a --log-schema of its own",
                ) from None

    def listen(self) -> WakeupListener:
        """Listen to the writer's notifications on a new connection, in a thread."""
        return listen(self._address)

    def close(self) -> None:
        """Close the connections."""
        for session in (self._consumers, *self._notes.values()):
            session.close()
