"""The transactions after a position, as the server streams them.

A transaction's position is the end LSN of its commit record, and its watermark is the same number: both increase with
every commit. The server is allowed to discard only what was acknowledged, so the slot is never ahead of our log. If it
is, our log has lost changes. When no published table changes for a while, an empty transaction moves slot and log
forward.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from itertools import chain

from psycopg.errors import ObjectInUse, ObjectNotInPrerequisiteState, UndefinedFile, UndefinedObject

from adapters.postgres.catalog.document import publications_needed
from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.change_reader import ChangeReader
from adapters.postgres.connection import Connection, translated_errors
from adapters.postgres.position import lsn_of
from adapters.postgres.replication.lineage import check_lineage, keep_watermarks_growing, watermarks_ahead
from adapters.postgres.replication.pgoutput import BeginMessage, CommitMessage, decode
from adapters.postgres.replication.raw_transaction import SPILL_BYTES, RawTransaction
from adapters.postgres.replication.session import Keepalive, ReplicationSession
from adapters.postgres.replication.slot import check_resumable, held_by_another
from adapters.postgres.schema_changes.capture import install
from adapters.postgres.schema_changes.versions import forget_versions, last_version
from adapters.postgres.schema_changes.watch import Watcher
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import AdapterError, Position, ResyncRequired, Transaction, position_lost
from changesource_sdk.toolkit import event, logger
from protocol.watermark import from_int

QUIET_BYTES = 16 * 1024 * 1024
"""Bytes of WAL without a published change after which an empty transaction moves the slot forward."""
HELD_FOR_S = 10.0
"""How long to wait for a former reader of the slot, which the server may not have noticed to be gone."""
_WAIT_S = 1.0
_BEGIN, _COMMIT = b"BC"
_log = logger("postgres")


class PostgresTail:
    """One reader of the slot. Invariant: positions increase, and none is confirmed before it is acknowledged.

    `transactions` runs in the pipeline's reading thread; `acknowledge` and `close` may be called from other threads.
    """

    def __init__(self, settings: PostgresSettings, *, spill_bytes: int = SPILL_BYTES) -> None:
        self._settings = settings
        self._spill_bytes = spill_bytes
        # Set by `close`, in any thread.
        self._closed = threading.Event()
        # The open session; set by the reading thread, and used by `acknowledge` and `close` in others. None before.
        self._session: ReplicationSession | None = None
        # The newest acknowledged LSN; `acknowledge` writes it, the reading thread reads it.
        self._acknowledged = 0
        # Schema versions before this LSN are deleted. Reading thread only.
        self._forgotten = 0
        # The position of the last transaction that was yielded. Reading thread only.
        self._last = 0
        # Up to here the server has sent everything, and all of it was yielded. Reading thread only.
        self._read_through = 0
        # How much higher watermarks are than LSNs (`replication.lineage`); set when the reading starts.
        self._watermark_offset = 0

    def transactions(self, after: Position) -> Iterator[Transaction]:
        """The transactions after a position, as they come, until `close`. Raises `ResyncRequired`."""
        after = self._last = lsn_of(after)
        db = self._settings.connect()
        watcher: Watcher | None = None
        try:
            reader, watcher = self._prepare(db, after)
            self._session = self._open_session(db, after)
            watcher.start()
            yield from self._follow(db, reader, self._session)
        except AdapterError as error:
            translated = _as_lost(error)
            if translated is error:
                raise
            raise translated from error
        finally:
            if watcher is not None:
                watcher.close()
            if self._session is not None:
                self._session.close()
            db.close()

    def _prepare(self, db: Connection, after: int) -> tuple[ChangeReader, Watcher]:
        """Check that the position can be resumed; returns the reader with the schema version of that position."""
        settings = self._settings
        with translated_errors(settings.dsn):
            has_triggers = install(db, settings.slot, settings.all_publications)
            try:
                check_resumable(db, settings, after)
                check_lineage(db, settings, after)
            except ResyncRequired:
                # The new snapshot needs a watermark above those that consumers have.
                keep_watermarks_growing(db, settings.slot, after)
                raise
            version = last_version(db, settings.slot, after)
            self._watermark_offset = watermarks_ahead(db, settings.slot)
            with publications_needed():
                warnings = read_catalog(db, settings.all_publications, settings.selection).warnings
        if version is None:
            raise position_lost("the schema it was read under is not kept any more")
        watcher = Watcher(settings, version.catalog, has_triggers=has_triggers)
        return ChangeReader(settings, db, version, watcher, warnings), watcher

    def _open_session(self, db: Connection, after: int) -> ReplicationSession:
        """Start streaming; waits up to `HELD_FOR_S` for a former reader to give up the slot."""
        deadline = time.monotonic() + HELD_FOR_S
        while True:
            try:
                return ReplicationSession(
                    self._settings.dsn, self._settings.slot, self._settings.all_publications, after
                )
            except AdapterError as error:
                if not isinstance(error.__cause__, ObjectInUse):
                    raise
                if time.monotonic() > deadline or self._closed.wait(0.1):
                    raise held_by_another(db, self._settings) from error

    def _follow(self, db: Connection, reader: ChangeReader, session: ReplicationSession) -> Iterator[Transaction]:
        raw: RawTransaction | None = None
        begin = BeginMessage(0, 0.0, 0)
        while not self._closed.is_set():
            self._forget_versions(db, reader)
            for received in session.receive(_WAIT_S):
                if isinstance(received, Keepalive):
                    if raw is None:
                        self._read_through = received.lsn
                    if raw is None and self._is_due(received):
                        yield self._empty(received.lsn)
                    continue
                kind = received.data[0]
                if kind == _BEGIN:
                    begin, raw = _begin(received.data), RawTransaction(self._spill_bytes)
                elif raw is not None and kind != _COMMIT:
                    raw.add(received.data)
                elif raw is not None:
                    yield from self._transaction(reader, raw, begin, _commit(received.data))
                    raw = None

    def _transaction(
        self, reader: ChangeReader, raw: RawTransaction, begin: BeginMessage, commit: CommitMessage
    ) -> Iterator[Transaction]:
        """The transaction, unless it was yielded before or has no changes for consumers."""
        if commit.end_lsn <= self._last:
            raw.close()
            return
        changes = reader.changes(raw.payloads(), begin, commit)
        first = next(changes, None)
        if first is not None:
            self._last = commit.end_lsn
            watermark = from_int(commit.end_lsn + self._watermark_offset)
            yield Transaction(commit.end_lsn, chain((first,), changes), begin.commit_time_ms, watermark)
            # If the consumer stopped early: the reader must see every message, or it misses schema changes.
            for _ in changes:
                pass

    def _is_due(self, keepalive: Keepalive) -> bool:
        """Whether an empty transaction is needed: much WAL has passed, or the server waits for us to shut down."""
        passed = keepalive.lsn - self._last
        return passed > QUIET_BYTES or (keepalive.wants_reply and passed > 0)

    def _empty(self, lsn: int) -> Transaction:
        self._last = lsn
        return Transaction(lsn, (), time.time() * 1000, from_int(lsn + self._watermark_offset))

    def passed(self, position: int) -> int:
        """How much of the WAL a log at this position has: more than the position, if nothing was for consumers since.
        Any thread.
        """
        return max(position, self._read_through) if position >= self._last else position

    def acknowledge(self, position: Position) -> None:
        """Everything up to `position` is durable in the log: the server may discard it."""
        if self._session is not None and type(position) is int:
            self._session.confirm(position)
            self._acknowledged = position

    def _forget_versions(self, db: Connection, reader: ChangeReader) -> None:
        """Delete schema versions that no position after the acknowledged one needs."""
        if self._forgotten < reader.stored_at <= self._acknowledged:
            with translated_errors(self._settings.dsn):
                forget_versions(db, self._settings.slot, self._acknowledged)
            self._forgotten = reader.stored_at

    def close(self) -> None:
        """Make `transactions` return."""
        self._closed.set()
        if self._session is not None:
            self._session.close()


def _begin(data: bytes) -> BeginMessage:
    message = decode(data)
    assert isinstance(message, BeginMessage)
    return message


def _commit(data: bytes) -> CommitMessage:
    message = decode(data)
    assert isinstance(message, CommitMessage)
    return message


def _as_lost(error: AdapterError) -> AdapterError:
    """`ResyncRequired` if the server cannot continue from the position; other errors unchanged."""
    match error.__cause__:
        case UndefinedObject() | UndefinedFile() | ObjectNotInPrerequisiteState() as cause:
            event(_log, logging.WARNING, "the stream cannot be continued", reason=str(cause))
            return position_lost(str(cause).splitlines()[0])
    return error
