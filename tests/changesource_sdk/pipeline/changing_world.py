"""A store that changes at random: rows and schema, seeded, remembering in plain dicts what it holds.

Every change is one that an adapter could send. The dicts are the truth a compacted snapshot must show, as long as no
column changes its type; what becomes of values then, SQLite knows better (`sqlite_replica`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    BadRow,
    Change,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    Position,
    RenameTable,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.schema import Column, Default, Index

Rows = dict[tuple[object, ...], dict[str, object]]

ITEM = Table(
    "item",
    [Column("id", int), Column("name", str), Column("n", int), Column("score", float), Column("done", bool)],
    indexes=[Index("item_n", ["n"])],
)
PAIR = Table("team.pair", [Column("a", str), Column("b", int), Column("doc", dict)], key=("a", "b"))
NOTE = Table("note", [Column("text", str), Column("n", int)], key=())
STILL = Table("still", [Column("id", int), Column("name", str)])
TABLES = (ITEM, PAIR, NOTE, STILL)
TYPES = ("int8", "text", "float8", "bool", "varchar(20)", "numeric")


class World:
    """Tables and rows now. `initial` is what they were at first, `transactions` all that happened since."""

    def __init__(self, random: Random, *, retypes: bool) -> None:
        self._random = random
        self._retypes = retypes
        self._names = 0
        self.schema = ConsumerSchema.of(TABLES)
        self.rows: dict[str, Rows] = {name: {} for name in self.schema.tables}
        for name in self.schema.tables:
            for _ in range(random.randrange(6)):
                self._put(name, self._row(self.schema.tables[name]))
        self.initial = {name: [dict(row) for row in rows.values()] for name, rows in self.rows.items()}
        self.transactions: list[list[Change]] = []

    def live(self, transactions: int, changes: int) -> None:
        """Go through so many transactions of up to so many changes."""
        for _ in range(transactions):
            made = [change for _ in range(self._random.randrange(changes + 1)) for change in self._change()]
            self.transactions.append(made)

    def _change(self) -> list[Change]:
        kinds: list[Callable[[], list[Change]]] = [self._insert, self._update, self._partial, self._move, self._delete]
        rare: list[Callable[[], list[Change]]] = [
            *(self._truncate, self._create, self._drop, self._rename),
            *(self._add_column, self._drop_column, self._alter),
        ]
        return self._random.choice(rare if self._random.random() < 0.2 else kinds * 2)()

    def _table(self, *, keyed: bool = False) -> Table | None:
        tables = [t for t in self.schema.tables.values() if t.name != "still" and (t.key or not keyed)]
        return self._random.choice(tables) if tables else None

    def _value(self, column: Column) -> object:
        random = self._random
        if column.optional and random.random() < 0.15:
            return None
        match column.data_type:
            case "int8":
                return random.choice((0, 1, 2, 3, -7, 2**40))
            case "float8" | "numeric":
                return random.choice((0.5, 1.0, 2.0, -3.25, 1e20))
            case "bool":
                return random.random() < 0.5
            case "json":
                return {"k": random.randrange(3)}
        return random.choice(("a", "b", "é", "12", "1.5", ""))

    def _row(self, table: Table) -> dict[str, object]:
        return {column.name: self._value(column) for column in table.columns}

    def _key(self, table: Table, row: Row) -> tuple[object, ...]:
        return tuple(row[name] for name in table.key) if table.key else (len(self.rows[table.full_name]), "row")

    def _put(self, name: str, row: dict[str, object]) -> None:
        self.rows[name][self._key(self.schema.tables[name], row)] = dict(row)

    def _some_row(self, table: Table) -> dict[str, object] | None:
        known = list(self.rows[table.full_name].values())
        return dict(self._random.choice(known)) if known else None

    def _insert(self) -> list[Change]:
        table = self._table()
        if table is None:
            return []
        row = self._row(table)
        self._put(table.full_name, row)
        return [Insert(table.full_name, row)]

    def _changed(self, table: Table, row: Row) -> dict[str, object]:
        return {c.name: row[c.name] if c.name in table.key else self._value(c) for c in table.columns}

    def _update(self) -> list[Change]:
        table = self._table(keyed=True)
        row = self._some_row(table) if table else None
        if table is None or row is None:
            return []
        new = self._changed(table, row)
        self._put(table.full_name, new)
        return [Update(table.full_name, new)]

    def _partial(self) -> list[Change]:
        table = self._table(keyed=True)
        row = self._some_row(table) if table else None
        if table is None or row is None:
            return []
        new = self._changed(table, row)
        told = {name: value for name, value in new.items() if name in table.key or self._random.random() < 0.5}
        self._put(table.full_name, {**row, **told})
        return [Update(table.full_name, told)]

    def _move(self) -> list[Change]:
        """To a key that is free, with all columns or only some."""
        table = self._table(keyed=True)
        row = self._some_row(table) if table else None
        if table is None or row is None:
            return []
        new = self._row(table)
        if self._key(table, new) in self.rows[table.full_name]:
            return []
        if self._random.random() < 0.5:
            new = {name: value for name, value in new.items() if name in table.key or self._random.random() < 0.5}
        del self.rows[table.full_name][self._key(table, row)]
        self._put(table.full_name, {**row, **new})
        return [Update(table.full_name, new, {name: row[name] for name in table.key})]

    def _delete(self) -> list[Change]:
        table = self._table(keyed=True)
        row = self._some_row(table) if table else None
        if table is None or row is None:
            return []
        del self.rows[table.full_name][self._key(table, row)]
        return [Delete(table.full_name, {name: row[name] for name in table.key})]

    def _truncate(self) -> list[Change]:
        table = self._table()
        if table is None:
            return []
        self.rows[table.full_name].clear()
        return [Truncate([table.full_name])]

    def _new_name(self) -> str:
        self._names += 1
        return f"new{self._names}"

    def _create(self) -> list[Change]:
        """A new table, sometimes under a name that another had."""
        name = "item" if "item" not in self.schema.tables else self._new_name()
        table = Table(name, [Column("id", int), Column("v", str)])
        self.rows[name] = {}
        return self._changed_schema(CreateTable(table))

    def _drop(self) -> list[Change]:
        table = self._table()
        if table is None:
            return []
        del self.rows[table.full_name]
        return self._changed_schema(DropTable(table.full_name))

    def _rename(self) -> list[Change]:
        table = self._table()
        if table is None or table.schema != "public":
            return []
        new = self._new_name()
        self.rows[new] = self.rows.pop(table.full_name)
        return self._changed_schema(RenameTable(table.full_name, new))

    def _add_column(self) -> list[Change]:
        table = self._table()
        if table is None:
            return []
        default: Default = self._random.choice((None, 7, True, "x"))
        kind = {int: "int8", bool: "bool", str: "text"}.get(type(default), "text")
        column = Column(self._new_name(), kind, default=default)
        for row in self.rows[table.full_name].values():
            row[column.name] = default
        return self._changed_schema(AddColumn(table.full_name, column))

    def _free_column(self, table: Table) -> Column | None:
        used = {name for index in self.schema.indexes_on(table.full_name) for name in index.directions}
        free = [column for column in table.columns if column.name not in used and column.name not in table.key]
        return self._random.choice(free) if free and len(table.columns) > 1 else None

    def _drop_column(self) -> list[Change]:
        table = self._table()
        column = self._free_column(table) if table else None
        if table is None or column is None:
            return []
        for row in self.rows[table.full_name].values():
            del row[column.name]
        return self._changed_schema(DropColumn(table.full_name, column.name))

    def _alter(self) -> list[Change]:
        """Another name or, if wanted, another type; of any column, key columns too."""
        table = self._table()
        if table is None:
            return []
        old = self._random.choice(table.columns)
        if self._retypes and self._random.random() < 0.6:
            kinds = ("text", "varchar(20)") if old.name in table.key else TYPES
            new = replace(old, type=self._random.choice(kinds))
        else:
            new = replace(old, name=self._new_name())
        for row in self.rows[table.full_name].values():
            value = row.pop(old.name)
            row[new.name] = value if new.data_type == old.data_type else self._as(new, value)
        made = self._changed_schema(AlterColumn(table.full_name, old.name, new))
        altered = self.schema.tables[table.full_name]
        if altered.key:
            rows = self.rows[table.full_name]
            self.rows[table.full_name] = {self._key(altered, row): row for row in rows.values()}
        return made

    @staticmethod
    def _as(column: Column, value: object) -> object:
        """Near enough for naming the row again: keys only ever become text, from integers or text."""
        return None if value is None else str(value) if column.data_type in ("text", "varchar(20)") else value

    def _changed_schema(self, *changes: Change) -> list[Change]:
        for change in changes:
            assert not isinstance(change, Insert | Update | Delete | Truncate | BadRow)
            self.schema = self.schema.apply(change)
        return list(changes)


class WorldAdapter:
    """Shows a world: first what it was, then its transactions; integers are positions."""

    def __init__(self, world: World) -> None:
        self._world = world

    def tables(self) -> Sequence[Table]:
        return TABLES

    def snapshot(self) -> Snapshot:
        halves = [(name, rows[half::2]) for name, rows in self._world.initial.items() for half in (0, 1)]
        return Snapshot(0, [RowsPartition(name, rows) for name, rows in halves])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        for number, changes in enumerate(self._world.transactions[after:], start=after + 1):
            yield Transaction(number, changes)
