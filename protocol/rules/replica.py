"""What a consumer's replica holds at a point of the stream: its tables, columns, indexes and row keys.

The checker (`rules`) applies every change to it. It shares no code with what sources use to validate before they send
(`changesource_sdk.pipeline.encoding`), so that the two can find each other's mistakes. A replica that saw no initial
sync is not `complete`: a table that it does not know may still exist. A change that cannot be applied is ignored.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from protocol import changes as wire
from protocol import values
from protocol.fold.indexes import Indexes
from protocol.fold.tables import TableFold, changed_columns
from protocol.specs import ColumnSpec, JsonObject, Relation, TableSpec


@dataclass(slots=True)
class CheckedTable:
    """What the rules need of a table. `CheckedReplica` writes it as changes come."""

    columns: dict[str, ColumnSpec]
    # The key columns of the first row change; None before it.
    key: tuple[str, ...] | None = None
    # The keys of the rows, as JSON; None as soon as they cannot be distinguished (see `CheckedReplica._row_id`).
    rows: set[bytes] | None = field(default_factory=set)


class CheckedReplica(TableFold[CheckedTable]):
    """Tables and indexes by their names in the replica, which share one namespace."""

    def __init__(self, *, complete: bool = False) -> None:
        super().__init__()
        self.complete = complete
        # How to undo the open transaction, last step last; empty between transactions.
        self._undo: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Start a transaction. Row keys are undone one by one; tables and indexes are few, so they are copied."""
        tables = {name: replace(table) for name, table in self.tables.items()}
        indexes = Indexes(self.indexes)
        self._undo = [lambda: self._restore(tables, indexes)]

    def rollback(self) -> None:
        """Undo the open transaction; no effect if there is none."""
        while self._undo:
            self._undo.pop()()

    def commit(self) -> None:
        """End the transaction; it cannot be undone any more."""
        self._undo.clear()

    def has_unique_index(self, table: str) -> bool:
        """Whether inserts into the table replace rows at all."""
        return any(index.unique for index in self.indexes.of(table))

    def has_key(self, table: str) -> bool:
        """Whether clients can sync the table: a unique index over not-null columns of synced types."""
        columns = self.tables[table].columns
        candidates = [index.columns for index in self.indexes.of(table) if index.unique]
        return any(all(_can_be_key(columns.get(name)) for name in names) for names in candidates)

    def has_row(self, relation: Relation, row: JsonObject) -> bool | None:
        """Whether a row with this row's key exists; None if that is unknown."""
        table = self.tables[relation.replica_name]
        row_id = _row_id(table, relation, row)
        return None if table.rows is None or row_id is None else row_id in table.rows

    def create(self, spec: TableSpec) -> CheckedTable:
        return CheckedTable(dict(spec.columns))

    def change_column(self, table: CheckedTable, change: wire.ColumnChange) -> None:
        table.columns = changed_columns(table.columns, change)
        if isinstance(change, wire.UpdateColumn) and table.key is not None:
            table.key = tuple(change.new.name if name == change.old.name else name for name in table.key)

    def insert(self, table: CheckedTable, relation: Relation, row: JsonObject) -> None:
        row_id = _row_id(table, relation, row)
        rows = table.rows
        if rows is not None and row_id is not None and row_id not in rows:
            rows.add(row_id)
            self._undo.append(lambda: rows.discard(row_id))

    def update(self, table: CheckedTable, relation: Relation, old_key: JsonObject | None, row: JsonObject) -> None:
        self.delete(table, relation, old_key or {})
        self.insert(table, relation, row)

    def delete(self, table: CheckedTable, relation: Relation, key: JsonObject) -> None:
        row_id = _row_id(table, relation, key)
        rows = table.rows
        if rows is not None and row_id is not None and row_id in rows:
            rows.discard(row_id)
            self._undo.append(lambda: rows.add(row_id))

    def truncate(self, table: CheckedTable) -> None:
        table.rows = set()

    def _restore(self, tables: dict[str, CheckedTable], indexes: Indexes) -> None:
        # Declared and explained in `TableFold`.
        self.tables, self.indexes = tables, indexes


def _row_id(table: CheckedTable, relation: Relation, row: JsonObject) -> bytes | None:
    """The identity of a row; a table whose changes use several keys, or none, is not tracked from then on."""
    key = relation.key
    table.key = table.key or key.columns
    if not key.columns or key.columns != table.key or key.type == "full":
        table.rows = None
    return values.dumps([row[name] for name in key.columns]) if row.keys() >= set(key.columns) else None


def _can_be_key(column: ColumnSpec | None) -> bool:
    return column is not None and bool(column.not_null) and column.zql_type is not None
