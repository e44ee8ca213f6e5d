"""Messages of the stream to changes, with the schema that holds at each point of the stream.

The reader keeps the current `Version` (catalog and types). It stores each new version under the position of the
transaction that made it, before that transaction ends. Changes of a table are skipped while its rows were read ahead of
the stream, or while its definition does not match the stream. Whatever is skipped is contained in a later read of the
whole table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from adapters.postgres.catalog.document import read_document
from adapters.postgres.catalog.model import Catalog, TableDef
from adapters.postgres.catalog.table_selection import SelectedTables
from adapters.postgres.connection import Connection, translated_errors
from adapters.postgres.read_ahead import read_ahead
from adapters.postgres.replication.pgoutput import (
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    Deleted,
    Inserted,
    LogicalMessage,
    RelationMessage,
    Truncated,
    Updated,
    decode,
)
from adapters.postgres.replication.relation import RelationReader, fits
from adapters.postgres.replication.visibility import Redefinition
from adapters.postgres.schema_changes.capture import PREFIX, REWRITE_PREFIX, Announcement
from adapters.postgres.schema_changes.ddl import Notice, migration
from adapters.postgres.schema_changes.versions import Version, store_version
from adapters.postgres.schema_changes.watch import Watcher
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import Change, Insert, Truncate
from changesource_sdk.toolkit import NOT_SYNCED, StandingWarnings, event, logger

_log = logger("postgres")


class ChangeReader:
    """Reads one transaction after the other, in the reading thread.

    Invariant: between transactions, `version` is the one that is stored in the database.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        db: Connection,
        version: Version,
        watcher: Watcher,
        warnings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`version` is that of the position to start at.

        `warnings` are about the current catalog, by table or column.
        """
        # The catalog at this point of the stream; replaced by every schema change and every read of a whole table.
        self.version = version
        # The position under which `version` is stored.
        self.stored_at = 1
        self._settings = settings
        self._db = db
        self._watcher = watcher
        # The layout of each table that the stream announced last, by oid.
        self._announced: dict[int, RelationMessage] = {}
        # How to read each table's tuples, by oid; None for tables that are not synced. Cleared by schema changes.
        self._readers: dict[int, RelationReader | None] = {}
        # The tables whose changes are skipped in the current transaction.
        self._skipped: set[int] = set()
        self._not_synced = StandingWarnings(_log, NOT_SYNCED)
        self._not_synced.set(warnings)
        # The current transaction, modulo 2^32.
        self._xid = 0
        # Tables that the current transaction has rewritten; the announcement of the command takes them.
        self._rewritten: frozenset[int] = frozenset()

    def changes(self, payloads: Iterable[bytes], begin: BeginMessage, commit: CommitMessage) -> Iterator[Change]:
        """The changes of one transaction. The caller must exhaust it before the next call."""
        before = self.version
        self._start(begin, commit)
        for payload in payloads:
            match decode(payload):
                case Inserted() | Updated() | Deleted() as message:
                    yield from self._row_change(message)
                case RelationMessage() as relation:
                    self._announced[relation.oid] = relation
                    self._readers.pop(relation.oid, None)
                case Truncated(oids):
                    yield from self._truncated(oids)
                case LogicalMessage(True, prefix, content):
                    yield from self._logical_message(prefix, content)
        if self._rewritten:
            yield from self._move(
                SelectedTables(self.version.catalog, self.version.types), Notice(True, self._rewritten)
            )
        if self.version is not before:
            with translated_errors(self._settings.dsn):
                store_version(self._db, self._settings.slot, commit.end_lsn, self.version)
            self.stored_at = commit.end_lsn

    def _start(self, begin: BeginMessage, commit: CommitMessage) -> None:
        """Decide which tables to skip in this transaction: those whose rows, read ahead, already contain it."""
        self._xid = begin.xid
        self._rewritten = frozenset()
        horizons = self.version.horizons
        if any(horizon.until < commit.end_lsn for horizon in horizons.values()):
            horizons = {oid: horizon for oid, horizon in horizons.items() if horizon.until >= commit.end_lsn}
            self.version = replace(self.version, horizons=horizons)
        self._skipped = {oid for oid, horizon in horizons.items() if horizon.has_seen(begin.xid)}
        self._skipped |= self.version.waiting

    def _row_change(self, message: Inserted | Updated | Deleted) -> Iterator[Change]:
        oid = message.oid
        if oid in self._skipped:
            return
        reader = self._readers[oid] if oid in self._readers else self._new_reader(oid)
        if reader is None:
            return
        if isinstance(message, Inserted):
            if UNCHANGED in message.new:
                # The update made the row match the publication's filter, so the server sends it as an insert, but
                # without unchanged TOAST values. Only a read of the table has those.
                yield from self._read_whole(oid, is_new=False)
            else:
                yield reader.inserted(message)
        elif isinstance(message, Updated):
            yield reader.updated(message)
        else:
            yield reader.deleted(message)

    def _new_reader(self, oid: int) -> RelationReader | None:
        table, relation = self.version.catalog.table(oid), self._announced[oid]
        reader = None
        if table is not None and fits(relation, table):
            reader = RelationReader(relation, table, self.version.types)
        elif table is not None:
            event(_log, logging.INFO, "a table changed without notice; it is read again", table=table.full_name)
            self._wait_for(oid)
        if oid not in self._skipped:
            self._readers[oid] = reader
        return reader

    def _wait_for(self, oid: int) -> None:
        """Skip a table until the next announcement of the catalog, and request one."""
        self._skipped.add(oid)
        self.version = replace(self.version, waiting=self.version.waiting | {oid})
        self._watcher.check_now(announce=True)

    def _truncated(self, oids: Iterable[int]) -> Iterator[Change]:
        tables = [self.version.catalog.table(oid) for oid in oids if oid not in self._skipped]
        names = [table.full_name for table in tables if table is not None]
        if names:
            yield Truncate(names)

    def _logical_message(self, prefix: str, content: bytes) -> Iterator[Change]:
        if prefix == REWRITE_PREFIX:
            self._rewritten |= {int(content)}
        elif prefix == f"{PREFIX}{self._settings.slot}":
            announcement = Announcement.parse(content, self._rewritten)
            self._rewritten = frozenset()
            if announcement.document is None:
                self._watcher.check_now(announce=True)
                return
            selected = read_document(announcement.document, self._settings.all_publications, self._settings.selection)
            yield from self._move(self._reconciled(selected, announcement), announcement.notice)

    def _reconciled(self, selected: SelectedTables, announcement: Announcement) -> SelectedTables:
        """The announced tables, except those with a redefinition that the announcement's snapshot does not contain.

        A transaction may describe the catalog, then another changes a table and commits first. The description is then
        outdated for that table, and the known definition is kept.
        """
        own, seen = self._xid, announcement.seen
        # A transaction sees its own changes, but other open transactions do not see them yet.
        known = {oid: m if m.xid == own else m.after(seen) for oid, m in self.version.moved.items()}
        moved = {oid: move for oid, move in known.items() if move is not None}
        self.version = replace(self.version, moved=moved)
        unseen = {oid for oid, move in moved.items() if move.xid != own and not seen.has_seen(move.xid)}
        if not unseen:
            return selected
        tables = [table for table in selected.catalog.tables if table.oid not in unseen]
        tables += [table for table in self.version.catalog.tables if table.oid in unseen]
        tables.sort(key=lambda table: (table.schema, table.name))
        return replace(selected, catalog=Catalog(tuple(tables)), types={**self.version.types, **selected.types})

    def _move(self, selected: SelectedTables, notice: Notice) -> Iterator[Change]:
        """Go to a new catalog: the schema changes, then all rows of the tables that need it."""
        old, new = self.version.catalog, selected.catalog
        self._watcher.known = new
        self._not_synced.set(selected.warnings)
        steps = migration(old, new, notice)
        created = {table.oid for table in steps.created}
        again = {table.oid for table in steps.resent} | (self.version.waiting - created)
        differing = {table.oid for table in (*old.tables, *new.tables) if old.table(table.oid) != new.table(table.oid)}
        emptied = [table.full_name for table in old.tables if table.oid in again and new.table(table.oid) is not None]
        if emptied:
            yield Truncate(emptied)
        yield from steps.changes
        if old == new and not again:
            return
        moved = {**self.version.moved, **dict.fromkeys(differing, Redefinition(self._xid))}
        self.version = Version(new, selected.types, self.version.horizons, frozenset(), moved)
        self._skipped -= again
        self._readers.clear()
        for table in new.tables:
            if table.oid in created or table.oid in again:
                yield from self._read_whole(table.oid, is_new=True)

    def _read_whole(self, oid: int, *, is_new: bool) -> Iterator[Change]:
        """All rows of a table in their current state. Later changes that these rows already contain will be skipped."""
        table = self.version.catalog.table(oid)
        if table is None:
            return
        ahead = read_ahead(self._settings, table, self._xid)
        if ahead is None:
            self._note_waiting(table)
            return
        self._skipped.add(oid)
        self.version = replace(self.version, horizons={**self.version.horizons, oid: ahead.horizon})
        if not is_new:
            yield Truncate([table.full_name])
        for row in ahead.rows():
            yield Insert(table.full_name, row)

    def _note_waiting(self, table: TableDef) -> None:
        """The table was changed again: its rows are read when the announcement of that change arrives."""
        self._skipped.add(table.oid)
        self.version = replace(self.version, waiting=self.version.waiting | {table.oid})
