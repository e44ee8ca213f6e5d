"""The states of the store, as the suite wrote them: one per transaction, in the form in which rows travel.

This is the oracle: what an adapter shows, in snapshots and in changes, must be one of these states, in this order. It
is recorded while writing, never read from the store, and does not use the folds of the product, which it helps to test.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import orjson

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    Column,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    RenameTable,
    Row,
    Table,
    Truncate,
    Update,
)
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.rows import RowShape
from changesource_sdk.pipeline.encoding.validate import known_table
from protocol.fold.rows import Key


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON value; it travels as text, in any spelling."""

    value: object

    def equals(self, travelled: object) -> bool:
        """Whether that text spells this value."""
        try:
            return isinstance(travelled, str) and bool(orjson.loads(travelled) == self.value)
        except orjson.JSONDecodeError:
            return False


Expected = Mapping[str, object]
"""A row: its compared columns, as they travel, JSON as `Document`."""

State = Mapping[str, Mapping[Key, Expected]]
"""Tables the suite wrote to, their rows by key."""


class WriteHistory:
    """States and the transactions between them. `record` adds to them, under `lock`; readers need no lock."""

    def __init__(self, tables: Sequence[Table], written: Sequence[str] = ()) -> None:
        # After the last transaction.
        self.schema = ConsumerSchema()
        for table in tables:
            self.schema = self.schema.apply(CreateTable(table))
        # `states[n]` is the state after the first n transactions.
        self.states: list[State] = [{name: {} for name in written}]
        # `identities[n]` has a number for each table of `states[n]` that stays with it when it is renamed.
        self.identities: list[Mapping[str, int]] = [{name: number for number, name in enumerate(written)}]
        # The identity of the next table that is created.
        self._next_identity = len(written)
        # `transactions[n]` leads from `states[n]` to `states[n + 1]`.
        self.transactions: list[tuple[Change, ...]] = []
        # The rows of each transaction, by table and key.
        self.touched: list[set[tuple[str, Key]]] = []
        # Held while a transaction is recorded and committed, so that both happen in the same order.
        self.lock = threading.Lock()

    @property
    def last(self) -> int:
        """The number of the newest state."""
        return len(self.states) - 1

    def table(self, name: str) -> Table:
        """A table as it is now."""
        return known_table(self.schema, name)

    def record(self, changes: Sequence[Change]) -> None:
        """Record a transaction before it is committed, so that no reader sees a state that is not here."""
        state = {name: dict(rows) for name, rows in self.states[-1].items()}
        identities = dict(self.identities[-1])
        touched: set[tuple[str, Key]] = set()
        for change in changes:
            self._apply(state, change)
            self._follow_names(identities, change)
            touched.update(self._rows_of(change))
        self.transactions.append(tuple(changes))
        self.touched.append(touched)
        self.identities.append(identities)
        self.states.append(state)

    def _apply(self, state: dict[str, dict[Key, Expected]], change: Change) -> None:
        match change:
            case Insert(name, row):
                state.setdefault(name, {})[self.key(name, row)] = self.travelled(name, row)
            case Update(name, row, old_key):
                rows = state.setdefault(name, {})
                old = rows.pop(self.key(name, old_key or row), {})
                rows[self.key(name, row)] = {**old, **self.travelled(name, row)}
            case Delete(name, key):
                state.setdefault(name, {}).pop(self.key(name, key), None)
            case CreateTable(table):
                state[table.full_name] = {}
            case DropTable(name):
                state.pop(name, None)
            case Truncate(names):
                state.update({name: {} for name in names})
            case RenameTable(old, new):
                state[new] = state.pop(old, {})
            case AddColumn(name, column):
                default = column.default
                state[name] = {key: {**row, column.name: default} for key, row in state.get(name, {}).items()}
            case AlterColumn(name, old, column):
                kept = state.get(name, {}).items()
                state[name] = {key: {column.name if c == old else c: v for c, v in row.items()} for key, row in kept}
            case DropColumn(name, gone):
                kept = state.get(name, {}).items()
                state[name] = {key: {c: v for c, v in row.items() if c != gone} for key, row in kept}
            case _:
                raise NotImplementedError(f"the suite does not write {type(change).__name__}")
        if isinstance(change, CreateTable | DropTable | RenameTable | AddColumn | DropColumn | AlterColumn):
            self.schema = self.schema.apply(change)

    def _follow_names(self, identities: dict[str, int], change: Change) -> None:
        match change:
            case CreateTable(table):
                identities[table.full_name] = self._next_identity
                self._next_identity += 1
            case DropTable(name):
                identities.pop(name, None)
            case RenameTable(old, new):
                identities[new] = identities.pop(old)
            case _:
                pass

    def _rows_of(self, change: Change) -> Iterator[tuple[str, Key]]:
        match change:
            case Insert(name, row) | Update(name, row):
                yield name, self.key(name, row)
                if isinstance(change, Update) and change.old_key is not None:
                    yield name, self.key(name, change.old_key)
            case Delete(name, key):
                yield name, self.key(name, key)

    def key(self, name: str, row: Row) -> Key:
        """A row's key as it travels."""
        columns = self.table(name).key
        travelled = self.travelled(name, {column: row[column] for column in columns})
        return tuple(travelled[column] for column in columns)

    def travelled(self, name: str, row: Row) -> dict[str, object]:
        """A row's values as they travel."""
        columns = tuple(column for column in self.table(name).columns if column.name in row)
        shape, documents = _shape(name, columns)
        wire = orjson.loads(shape.to_json({column.name: row[column.name] for column in columns}))
        for column in documents:
            if wire[column] is not None:
                wire[column] = Document(orjson.loads(wire[column]))
        travelled: dict[str, object] = wire
        return travelled


@lru_cache(64)
def _shape(name: str, columns: tuple[Column, ...]) -> tuple[RowShape, tuple[str, ...]]:
    """How rows of these columns travel, and which of them hold JSON."""
    return RowShape(name, columns), tuple(column.name for column in columns if column.kind in ("json", "array"))
