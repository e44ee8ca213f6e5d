"""Following a real database step by step: a consumer that starts at a snapshot and is compared with a fresh one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.connection import Connection, connect
from adapters.postgres.opening import open_snapshot, prepare
from adapters.postgres.replication.slot import slot_state
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.snapshot import table_ranges
from adapters.postgres.tail import PostgresTail
from changesource_sdk.adapter import Change, CreateTable, Insert, Row, Transaction, Update
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.schema import Table
from tests.adapters.sqlite.under_load.consumer import Consumer, HeldTable
from tests.support.waiting import until

FENCE = "fence"


class Mirror(Consumer):
    """A strict consumer that takes partial updates and old keys, as the official one does."""

    def _create(self, table: Table) -> None:
        assert table.full_name not in self.tables, f"{table.full_name} exists"
        known = ConsumerSchema(dict.fromkeys(self.tables, table), self.indexes)
        self.tables[table.full_name] = HeldTable({column.name: column for column in table.columns}, tuple(table.key))
        for index in known.indexes_for(table):
            self._create_index(index)

    def _put(self, name: str, row: Row) -> None:
        if self.tables[name].key:
            super()._put(name, {column: row.get(column) for column in self.tables[name].columns} | dict(row))
        else:
            rows = self.tables[name].rows
            rows[len(rows), repr(sorted(row.items()))] = dict(row)

    def contents(self, name: str) -> list[str]:
        """The rows of a table in an order of their own."""
        return sorted(repr(sorted(row.items())) for row in self.tables[name].rows.values())

    def _apply(self, change: Change) -> None:
        if not isinstance(change, Update):
            super()._apply(change)
            return
        held = self.tables[change.table]
        key = _key(held, change.old_key if change.old_key is not None else change.row)
        before = held.rows.pop(key)
        self._refuse_conflicts(change.table, {**before, **change.row})
        self._put(change.table, {**before, **change.row})


def _key(held: HeldTable, row: Row) -> tuple[object, ...]:
    return tuple(row[column] for column in held.key)


@dataclass
class Follower:
    """A mirror of a database, and the stream that keeps it so. Every transaction passes the SDK's own checks."""

    settings: PostgresSettings
    folder: Path
    mirror: Mirror = field(default_factory=Mirror)
    seen: list[Transaction] = field(default_factory=list)
    position: int = 0
    watermark: str = ""
    fences: int = 0

    def __post_init__(self) -> None:
        self.app = connect(self.settings.dsn)
        self.app.execute("SET search_path = public, pg_catalog")
        self.app.execute(f"CREATE TABLE IF NOT EXISTS public.{FENCE} (n int PRIMARY KEY)".encode())
        self.begin()

    def begin(self) -> None:
        """Start over with a new snapshot."""
        self.mirror = Mirror()
        prepare(self.settings)
        snapshot, found = open_snapshot(self.settings)
        self.position, self.watermark = snapshot.lsn, snapshot.watermark
        tables = [table.declared() for table in found.catalog.tables]
        self.mirror.apply(CreateTable(table) for table in tables)
        self.mirror.apply(_all_rows(self.app, self.settings, snapshot.name))
        snapshot.close()
        self._encoder = TransactionEncoder(ConsumerSchema.of(tables), lambda: self.folder / "segment")
        self._open()

    def _open(self) -> None:
        self.stream = PostgresTail(self.settings)
        self._transactions = self.stream.transactions(self.position)

    def restart(self) -> None:
        """As after a crash: everything but the position is lost."""
        self.close()
        self._open()

    def run(self, *statements: str) -> None:
        """Statements of an application, each its own transaction."""
        for statement in statements:
            self.app.execute(statement.encode())

    def catch_up(self) -> list[list[Change]]:
        """Read until everything committed so far was seen; the changes of each transaction, without the fence."""
        self.fences += 1
        self.run(f"INSERT INTO public.{FENCE} VALUES ({self.fences})")
        fence = Insert(FENCE, {"n": self.fences})
        found = []
        while fence not in (changes := self._next()):
            found.append(changes)
        rest = [change for change in changes if change != fence]
        return [*found, rest] if rest else found

    def read_some(self, most: int) -> None:
        """Read on, but not necessarily to the end of what was committed."""
        self.fences += 1
        self.run(f"INSERT INTO public.{FENCE} VALUES ({self.fences})")
        fence = Insert(FENCE, {"n": self.fences})
        for _ in range(most):
            if fence in self._next():
                return

    def _next(self) -> list[Change]:
        transaction = next(self._transactions)
        changes = list(transaction.changes)
        assert isinstance(transaction.position, int)
        assert transaction.position > self.position
        assert transaction.watermark is not None
        assert transaction.watermark > self.watermark
        self.watermark = transaction.watermark
        self._encoder.encode(Transaction(transaction.position, changes, watermark=transaction.watermark))
        self.mirror.apply(changes)
        self.position = transaction.position
        self.seen.append(transaction)
        self.stream.acknowledge(self.position)
        return changes

    def changes(self) -> list[Change]:
        """All changes up to now, whichever transaction they came in."""
        return [change for changes in self.catch_up() for change in changes]

    def settle(self) -> None:
        """Let tables whose rows wait for the next announcement have it."""
        self.run("CREATE TABLE settled (id int PRIMARY KEY)")
        self.catch_up()

    def assert_same(self) -> None:
        """The mirror holds what a new snapshot of the database holds."""
        self.app.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        exported = self.app.execute("SELECT pg_export_snapshot()").fetchone()
        assert exported is not None
        fresh = Mirror()
        found = read_catalog(self.app, self.settings.all_publications, self.settings.selection)
        fresh.apply(CreateTable(table.declared()) for table in found.catalog.tables)
        fresh.apply(_all_rows(self.app, self.settings, exported[0]))
        self.app.execute("COMMIT")
        assert set(self.mirror.tables) == set(fresh.tables)
        for name, held in fresh.tables.items():
            assert self.mirror.contents(name) == fresh.contents(name), name
            assert self.mirror.tables[name].columns.keys() == held.columns.keys(), name
            kinds = {column.name: (column.data_type, column.optional) for column in held.columns.values()}
            mirrored = self.mirror.tables[name].columns.values()
            assert {column.name: (column.data_type, column.optional) for column in mirrored} == kinds, name
            assert _indexed(self.mirror, name) == _indexed(fresh, name)

    def close(self) -> None:
        self.stream.close()
        for _ in self._transactions:
            pass

    def drop(self) -> None:
        """End everything, so that the server has room for others."""
        self.drop_slot()
        self.app.close()

    def drop_slot(self) -> None:
        """Take the slot away."""
        self.close()
        until(lambda: not self._is_held(), "the slot to be free")
        if slot_state(self.app, self.settings.slot):
            self.app.execute("SELECT pg_drop_replication_slot(%s)", (self.settings.slot,))

    def _is_held(self) -> bool:
        state = slot_state(self.app, self.settings.slot)
        return state is not None and state.active_pid is not None


def _indexed(mirror: Mirror, table: str) -> set[tuple[tuple[str, ...], bool]]:
    return {(tuple(index.directions), index.unique) for index in mirror.indexes.values() if index.table == table}


def _all_rows(db: Connection, settings: PostgresSettings, snapshot: str) -> Iterator[Change]:
    found = read_catalog(db, settings.all_publications, settings.selection)
    for part in table_ranges(db, settings.dsn, snapshot, found.catalog, found.types):
        for row in part.rows():
            yield Insert(part.table, row)
