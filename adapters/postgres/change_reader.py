"""Messages of the stream to changes: which table they are of, what its rows are, and what became of the schema.

The reader carries a `Version` along the stream and stores each new one under the position of the transaction that made
it, before that transaction ends. Changes to a table are passed over while its rows are ahead of the stream, or while
its definition is out of step with the stream; whatever is passed over is made good by reading the table whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from adapters.postgres.catalog.document import read_document
from adapters.postgres.catalog.model import Catalog, TableDef
from adapters.postgres.catalog.table_selection import Found
from adapters.postgres.connection import Connection, naming_the_cause
from adapters.postgres.read_ahead import read_ahead
from adapters.postgres.replication.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Deleted,
    Inserted,
    LogicalMessage,
    Relation,
    Truncated,
    Updated,
    decode,
)
from adapters.postgres.replication.relation import RelationReader, fits
from adapters.postgres.replication.visibility import Move
from adapters.postgres.schema_changes.capture import PREFIX, REWRITE_PREFIX, Announcement
from adapters.postgres.schema_changes.ddl import Notice, migration
from adapters.postgres.schema_changes.versions import Version, store_version
from adapters.postgres.schema_changes.watch import Watcher
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import Change, Insert, Truncate
from changesource_sdk.toolkit import NOT_SYNCED, StandingWarnings, event, logger

_log = logger("postgres")


class ChangeReader:
    """Reads one transaction after the other. Invariant: between transactions, `version` is the stored one."""

    def __init__(
        self,
        settings: PostgresSettings,
        db: Connection,
        version: Version,
        watcher: Watcher,
        warnings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start with a version; `warnings` are about the catalog as it is now, by table or column."""
        self.version = version
        self.stored_at = 1
        self._settings = settings
        self._db = db
        self._watcher = watcher
        self._announced: dict[int, Relation] = {}
        self._readers: dict[int, RelationReader | None] = {}
        self._passed: set[int] = set()
        self._not_synced = StandingWarnings(_log, NOT_SYNCED)
        self._not_synced.set(warnings)
        self._xid = 0
        self._rewritten: frozenset[int] = frozenset()

    def changes(self, payloads: Iterable[bytes], begin: Begin, commit: Commit) -> Iterator[Change]:
        """The changes of one transaction; it must be read to its end before the next."""
        before = self.version
        self._start(begin, commit)
        for payload in payloads:
            match decode(payload):
                case Inserted() | Updated() | Deleted() as message:
                    yield from self._row_change(message)
                case Relation() as relation:
                    self._announced[relation.oid] = relation
                    self._readers.pop(relation.oid, None)
                case Truncated(oids):
                    yield from self._truncated(oids)
                case LogicalMessage(True, prefix, content):
                    yield from self._logical_message(prefix, content)
        if self._rewritten:
            yield from self._move(Found(self.version.catalog, self.version.types), Notice(True, self._rewritten))
        if self.version is not before:
            with naming_the_cause(self._settings.dsn):
                store_version(self._db, self._settings.slot, commit.end_lsn, self.version)
            self.stored_at = commit.end_lsn

    def _start(self, begin: Begin, commit: Commit) -> None:
        """Decide which tables this transaction's changes are passed over for."""
        self._xid = begin.xid
        self._rewritten = frozenset()
        horizons = self.version.horizons
        if any(horizon.until < commit.end_lsn for horizon in horizons.values()):
            horizons = {oid: horizon for oid, horizon in horizons.items() if horizon.until >= commit.end_lsn}
            self.version = replace(self.version, horizons=horizons)
        self._passed = {oid for oid, horizon in horizons.items() if horizon.has_seen(begin.xid)}
        self._passed |= self.version.waiting

    def _row_change(self, message: Inserted | Updated | Deleted) -> Iterator[Change]:
        oid = message.oid
        if oid in self._passed:
            return
        reader = self._readers[oid] if oid in self._readers else self._new_reader(oid)
        if reader is None:
            return
        if isinstance(message, Inserted):
            if UNCHANGED in message.new:
                # A row that came into the publication's filter; its large values are in the store only.
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
            event(_log, logging.INFO, "a table changed without notice; it is read anew", table=table.full_name)
            self._wait_for(oid)
        if oid not in self._passed:
            self._readers[oid] = reader
        return reader

    def _wait_for(self, oid: int) -> None:
        """Pass over a table until the catalog next moves, and see to it that it does."""
        self._passed.add(oid)
        self.version = replace(self.version, waiting=self.version.waiting | {oid})
        self._watcher.look(announce=True)

    def _truncated(self, oids: Iterable[int]) -> Iterator[Change]:
        tables = [self.version.catalog.table(oid) for oid in oids if oid not in self._passed]
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
                self._watcher.look(announce=True)
                return
            found = read_document(announcement.document, self._settings.all_publications, self._settings.selection)
            yield from self._move(self._reconciled(found, announcement), announcement.notice)

    def _reconciled(self, found: Found, announcement: Announcement) -> Found:
        """What was found, but for tables that a transaction changed which the description has not seen."""
        own, seen = self._xid, announcement.seen
        # A transaction sees itself, but what it moved is still unseen by others that are under way.
        known = {oid: m if m.xid == own else m.after(seen) for oid, m in self.version.moved.items()}
        moved = {oid: move for oid, move in known.items() if move is not None}
        self.version = replace(self.version, moved=moved)
        unseen = {oid for oid, move in moved.items() if move.xid != own and not seen.has_seen(move.xid)}
        if not unseen:
            return found
        tables = [table for table in found.catalog.tables if table.oid not in unseen]
        tables += [table for table in self.version.catalog.tables if table.oid in unseen]
        tables.sort(key=lambda table: (table.schema, table.name))
        return replace(found, catalog=Catalog(tuple(tables)), types={**self.version.types, **found.types})

    def _move(self, found: Found, notice: Notice) -> Iterator[Change]:
        """To a new catalog: first the schema changes, then the rows they call for."""
        old, new = self.version.catalog, found.catalog
        self._watcher.known = new
        self._not_synced.set(found.warnings)
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
        moved = {**self.version.moved, **dict.fromkeys(differing, Move(self._xid))}
        self.version = Version(new, found.types, self.version.horizons, frozenset(), moved)
        self._passed -= again
        self._readers.clear()
        for table in new.tables:
            if table.oid in created or table.oid in again:
                yield from self._read_whole(table.oid, is_new=True)

    def _read_whole(self, oid: int, *, is_new: bool) -> Iterator[Change]:
        """All rows of a table as they are now; what they hold already is passed over from here on."""
        table = self.version.catalog.table(oid)
        if table is None:
            return
        found = read_ahead(self._settings, table, self._xid)
        if found is None:
            self._note_waiting(table)
            return
        self._passed.add(oid)
        self.version = replace(self.version, horizons={**self.version.horizons, oid: found.horizon})
        if not is_new:
            yield Truncate([table.full_name])
        for row in found.rows():
            yield Insert(table.full_name, row)

    def _note_waiting(self, table: TableDef) -> None:
        """The table has changed again since: its rows come with the announcement of that."""
        self._passed.add(table.oid)
        self.version = replace(self.version, waiting=self.version.waiting | {table.oid})
