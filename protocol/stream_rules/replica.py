"""What a consumer's replica holds at a point of the stream: its tables, columns, indexes and row keys.

The checker's model of the other end, told of every change by `rules`. It stands apart from what sources use to validate
before they send, so that the two can find each other's mistakes. A replica that saw no initial sync is not `complete`:
what it does not know may still exist. A change that cannot be applied is passed over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from protocol import values
from protocol.changes import (
    AddColumn,
    Change,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropIndex,
    DropTable,
    Insert,
    RenameTable,
    Truncate,
    Update,
    UpdateColumn,
)
from protocol.specs import ColumnSpec, IndexSpec, JsonObject, Relation


@dataclass(slots=True)
class Table:
    """A table; `rows` holds the keys of its rows, or None where they cannot be told."""

    columns: dict[str, ColumnSpec]
    key: tuple[str, ...] | None = None
    rows: set[bytes] | None = field(default_factory=set)


@dataclass(slots=True)
class Index:
    """An index of a table, by the table's name in the replica."""

    table: str
    unique: bool
    columns: tuple[str, ...]


@dataclass(slots=True)
class Replica:
    """Tables and indexes by their names in the replica, which share one namespace."""

    complete: bool = False
    tables: dict[str, Table] = field(default_factory=dict)
    indexes: dict[str, Index] = field(default_factory=dict)
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def begin(self) -> None:
        """A transaction begins: remember how to take it back. Row keys are undone one by one, the rest is small."""
        tables = {name: replace(table) for name, table in self.tables.items()}
        indexes = {name: replace(index) for name, index in self.indexes.items()}
        self._undo = [lambda: self._restore(tables, indexes)]

    def rollback(self) -> None:
        """The transaction did not happen; no effect if none began."""
        while self._undo:
            self._undo.pop()()

    def commit(self) -> None:
        """The transaction cannot be taken back any more."""
        self._undo.clear()

    def has_unique_index(self, table: str) -> bool:
        """Whether inserts into the table replace at all."""
        return any(index.unique for index in self.indexes_of(table))

    def has_key(self, table: str) -> bool:
        """Whether clients can sync the table: a unique index over not-null columns of synced types."""
        columns = self.tables[table].columns
        candidates = [index.columns for index in self.indexes_of(table) if index.unique]
        return any(all(_can_be_key(columns.get(name)) for name in names) for names in candidates)

    def has_row(self, relation: Relation, row: JsonObject) -> bool | None:
        """Whether a row with this row's key exists; None where that cannot be told."""
        row_id = self._row_id(relation, row)
        rows = self.tables[relation.replica_name].rows
        return None if rows is None or row_id is None else row_id in rows

    def indexes_of(self, table: str) -> list[Index]:
        """The indexes of a table."""
        return [index for index in self.indexes.values() if index.table == table]

    def apply(self, change: Change) -> None:
        """Take a change in."""
        match change:
            case Insert():
                self._put(change.relation, change.new)
            case Update():
                self._remove(change.relation, change.key or {})
                self._put(change.relation, change.new)
            case Delete():
                self._remove(change.relation, change.key)
            case Truncate():
                self._truncate(change)
            case CreateTable():
                self.tables[change.spec.replica_name] = Table(dict(change.spec.columns))
            case RenameTable():
                self._rename_table(change.old.replica_name, change.new.replica_name)
            case DropTable():
                self._drop_table(change.id.replica_name)
            case CreateIndex():
                self._create_index(change.spec)
            case DropIndex():
                self.indexes.pop(change.id.replica_name, None)
            case AddColumn() | UpdateColumn() | DropColumn():
                self._change_column(change)
            case _:
                pass

    def _restore(self, tables: dict[str, Table], indexes: dict[str, Index]) -> None:
        self.tables, self.indexes = tables, indexes

    def _row_id(self, relation: Relation, row: JsonObject) -> bytes | None:
        """The identity of a row; a table whose changes use several keys, or none, is not tracked from then on."""
        table = self.tables[relation.replica_name]
        key = relation.key
        table.key = table.key or key.columns
        if not key.columns or key.columns != table.key or key.type == "full":
            table.rows = None
        return values.dumps([row[name] for name in key.columns]) if row.keys() >= set(key.columns) else None

    def _put(self, relation: Relation, row: JsonObject) -> None:
        if relation.replica_name not in self.tables:
            return
        row_id = self._row_id(relation, row)
        rows = self.tables[relation.replica_name].rows
        if rows is not None and row_id is not None and row_id not in rows:
            rows.add(row_id)
            self._undo.append(lambda: rows.discard(row_id))

    def _remove(self, relation: Relation, key: JsonObject) -> None:
        if relation.replica_name not in self.tables:
            return
        row_id = self._row_id(relation, key)
        rows = self.tables[relation.replica_name].rows
        if rows is not None and row_id is not None and row_id in rows:
            rows.discard(row_id)
            self._undo.append(lambda: rows.add(row_id))

    def _truncate(self, change: Truncate) -> None:
        for relation in change.relations:
            if relation.replica_name in self.tables:
                self.tables[relation.replica_name].rows = set()

    def _rename_table(self, old: str, new: str) -> None:
        if old in self.tables:
            self.tables[new] = self.tables.pop(old)
        for index in self.indexes_of(old):
            index.table = new

    def _drop_table(self, name: str) -> None:
        self.tables.pop(name, None)
        self.indexes = {each: index for each, index in self.indexes.items() if index.table != name}

    def _create_index(self, spec: IndexSpec) -> None:
        self.indexes[spec.replica_name] = Index(spec.replica_table, spec.unique, tuple(spec.columns))

    def _change_column(self, change: AddColumn | UpdateColumn | DropColumn) -> None:
        table = self.tables.get(change.table.replica_name)
        if table is None:
            return
        columns = dict(table.columns)
        if isinstance(change, AddColumn):
            columns[change.column.name] = change.column.spec
        elif isinstance(change, DropColumn):
            columns.pop(change.column, None)
        else:
            columns.pop(change.old.name, None)
            columns[change.new.name] = change.new.spec
            self._rename_column(change.table.replica_name, change.old.name, change.new.name)
        table.columns = columns

    def _rename_column(self, table: str, old: str, new: str) -> None:
        for index in self.indexes_of(table):
            index.columns = _renamed(index.columns, old, new)
        self.tables[table].key = _renamed(self.tables[table].key or (), old, new) or None


def _renamed(names: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if name == old else name for name in names)


def _can_be_key(column: ColumnSpec | None) -> bool:
    return column is not None and bool(column.not_null) and column.zql_type is not None
