"""What was committed after a position, transaction by transaction, as the server streams it.

A transaction's position is the end of its commit record in the server's log, and its watermark is the same number: both
grow with every commit. The server is told to forget what was acknowledged and nothing beyond it, so the slot is never
ahead of the log; a log that is behind the slot is thus known to have lost something. When nothing that is published
changes for a while, an empty transaction moves both on.
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
from adapters.postgres.connection import Connection, naming_the_cause
from adapters.postgres.replication.lineage import check_lineage, keep_watermarks_growing, watermarks_ahead
from adapters.postgres.replication.pgoutput import Begin, Commit, decode
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
"""So much of the server's log may pass without anything published before an empty transaction moves the slot on."""
HELD_FOR_S = 10.0
"""How long a slot may be held by a reader that is going away."""
_WAIT_S = 1.0
_BEGIN, _COMMIT = b"BC"
_log = logger("postgres")


class Stream:
    """One reader of the slot. Invariant: positions increase, and none is confirmed before it is acknowledged."""

    def __init__(self, settings: PostgresSettings, *, spill_bytes: int = SPILL_BYTES) -> None:
        self._settings = settings
        self._spill_bytes = spill_bytes
        self._closed = threading.Event()
        self._session: ReplicationSession | None = None
        self._acknowledged = self._forgotten = 0
        self._last = self._ahead = 0

    def transactions(self, after: Position) -> Iterator[Transaction]:
        """What follows a position, as it comes, until the stream is closed."""
        if type(after) is not int:
            raise position_lost("the position was not made by this adapter")
        self._last = after
        db = self._settings.connect()
        watcher: Watcher | None = None
        try:
            reader, watcher = self._prepare(db, after)
            self._session = self._open_session(db, after)
            watcher.start()
            yield from self._follow(db, reader, self._session)
        except AdapterError as error:
            explained = _as_lost(error)
            if explained is error:
                raise
            raise explained from error
        finally:
            if watcher is not None:
                watcher.close()
            if self._session is not None:
                self._session.close()
            db.close()

    def _prepare(self, db: Connection, after: int) -> tuple[ChangeReader, Watcher]:
        """See whether the position can be continued from, and with what."""
        settings = self._settings
        with naming_the_cause(settings.dsn):
            has_triggers = install(db, settings.slot, settings.all_publications)
            try:
                check_resumable(db, settings, after)
                check_lineage(db, settings, after)
            except ResyncRequired:
                keep_watermarks_growing(db, settings.slot, after)
                raise
            version = last_version(db, settings.slot, after)
            self._ahead = watermarks_ahead(db, settings.slot)
            with publications_needed():
                warnings = read_catalog(db, settings.all_publications, settings.selection).warnings
        if version is None:
            raise position_lost("the schema it was read under is not kept any more")
        watcher = Watcher(settings, version.catalog, has_triggers=has_triggers)
        return ChangeReader(settings, db, version, watcher, warnings), watcher

    def _open_session(self, db: Connection, after: int) -> ReplicationSession:
        """Start streaming; a former reader may still hold the slot for a moment."""
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
        begin = Begin(0, 0.0, 0)
        while not self._closed.is_set():
            self._forget(db, reader)
            for received in session.receive(_WAIT_S):
                if isinstance(received, Keepalive):
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
        self, reader: ChangeReader, raw: RawTransaction, begin: Begin, commit: Commit
    ) -> Iterator[Transaction]:
        """The transaction, unless it was given before or has nothing in it for consumers."""
        if commit.end_lsn <= self._last:
            raw.close()
            return
        changes = reader.changes(raw.payloads(), begin, commit)
        first = next(changes, None)
        if first is not None:
            self._last = commit.end_lsn
            mark = from_int(commit.end_lsn + self._ahead)
            yield Transaction(commit.end_lsn, chain((first,), changes), begin.commit_time_ms, mark)
            for _ in changes:
                pass

    def _is_due(self, keepalive: Keepalive) -> bool:
        """Whether the slot must be moved on without a change: much has passed by, or the server waits to shut down."""
        passed = keepalive.lsn - self._last
        return passed > QUIET_BYTES or (keepalive.wants_reply and passed > 0)

    def _empty(self, lsn: int) -> Transaction:
        self._last = lsn
        return Transaction(lsn, (), time.time() * 1000, from_int(lsn + self._ahead))

    def acknowledge(self, position: Position) -> None:
        """Everything up to `position` is durable downstream: the server may forget it."""
        if self._session is not None and type(position) is int:
            self._session.confirm(position)
            self._acknowledged = position

    def _forget(self, db: Connection, reader: ChangeReader) -> None:
        """Versions behind what was acknowledged."""
        if self._forgotten < reader.stored_at <= self._acknowledged:
            with naming_the_cause(self._settings.dsn):
                forget_versions(db, self._settings.slot, self._acknowledged)
            self._forgotten = reader.stored_at

    def close(self) -> None:
        """Make `transactions` return."""
        self._closed.set()
        if self._session is not None:
            self._session.close()


def _begin(data: bytes) -> Begin:
    message = decode(data)
    assert isinstance(message, Begin)
    return message


def _commit(data: bytes) -> Commit:
    message = decode(data)
    assert isinstance(message, Commit)
    return message


def _as_lost(error: AdapterError) -> AdapterError:
    """What the server says when it cannot go on from where we are; other errors as they are."""
    match error.__cause__:
        case UndefinedObject() | UndefinedFile() | ObjectNotInPrerequisiteState() as cause:
            event(_log, logging.WARNING, "the stream cannot be continued", reason=str(cause))
            return position_lost(str(cause).splitlines()[0])
    return error
