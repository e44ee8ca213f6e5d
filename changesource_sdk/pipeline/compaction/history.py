"""How the tables of a log changed from one snapshot to a later point: what old rows must go through to be current.

A row is written once and may outlive many schema changes. Its table is known by the name it had at that moment; the
history finds the same table at the end, under any name, and brings the row forward: columns added, dropped, renamed,
converted. A row of a table that was dropped or truncated later is left out at once. Pure, small (schema changes and
truncations only) and picklable, so that every task of a compaction gets a copy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.schema import Table
from protocol import changes as wire
from protocol.fold.row_steps import Step, step_of
from protocol.fold.tables import TableFold
from protocol.specs import JsonObject, Relation, TableSpec

WireRow: TypeAlias = Mapping[str, object]
"""Column names to JSON values, as they travel."""

Order: TypeAlias = tuple[str, int]
"""When a change happened: the watermark of its transaction, and its number within."""

START: Order = ("", 0)
"""The order of everything that is in the snapshot."""


@dataclass(slots=True)
class TableHistory:
    """One table from its creation, or the snapshot, on, under all its names. Only `SchemaHistory` writes it."""

    # Its index in `SchemaHistory.numbered`.
    number: int
    # The number of columns at its creation.
    width: int
    # The table at the end; None if it was dropped.
    table: Table | None = None
    # The last truncation: rows written before it are gone.
    emptied: Order = START
    # Column changes in order; `add` appends.
    steps: list[tuple[Order, Step]] = field(default_factory=list)
    # The number of columns after each of `steps`.
    widths: list[tuple[Order, int]] = field(default_factory=list)

    def survives(self, order: Order) -> bool:
        """Whether a row written then can still be there."""
        return self.table is not None and order >= self.emptied

    def width_at(self, order: Order) -> int:
        """The number of columns the table had then."""
        return next((width for since, width in reversed(self.widths) if since <= order), self.width)

    def advance(self, row: WireRow, since: Order, until: Order | None = None) -> dict[str, object]:
        """The row of the moment `since` as it is at `until`, or at the end."""
        current = dict(row)
        for order, step in self.steps:
            if order > since and (until is None or order < until):
                step.apply(current)
        return current

    def add(self, order: Order, step: Step) -> None:
        """Note a column change; called in order."""
        self.steps.append((order, step))
        width = self.widths[-1][1] if self.widths else self.width
        self.widths.append((order, width + step.columns))


class SchemaHistory(TableFold[TableHistory]):
    """All tables that existed at some moment, in `numbered`. Names are those of the replica. Constant once made."""

    def __init__(
        self, base: ConsumerSchema, events: Iterable[tuple[Order, wire.Change]], final: ConsumerSchema
    ) -> None:
        super().__init__()
        # Every table that was ever created, by `TableHistory.number`.
        self.numbered: list[TableHistory] = []
        # For each name, which table it stood for from when on; None after a drop or rename.
        self._names: dict[str, list[tuple[Order, TableHistory | None]]] = {}
        # When the event that is being applied happened; used while the history is made.
        self._order = START
        for name, table in base.tables.items():
            self.bind(name, self._new(len(table.columns)))
        for self._order, change in events:
            self.apply_change(change)
        for name, table in final.tables.items():
            if name in self.tables:
                self.tables[name].table = table

    def at(self, name: str, order: Order) -> TableHistory | None:
        """The table that had this name then."""
        known = self._names.get(name, [])
        later = bisect_right(known, order, key=lambda entry: entry[0])
        return known[later - 1][1] if later else None

    def widths(self, name: str) -> set[int]:
        """All numbers of columns of all tables that ever had this name."""
        tables = [table for _, table in self._names.get(name, []) if table is not None]
        return {width for table in tables for width in (table.width, *(width for _, width in table.widths))}

    def unchanged(self, name: str) -> bool:
        """Whether this table of the snapshot kept its name, its columns and all of its rows, as far as known here."""
        table = self.at(name, START)
        if table is None or table.table is None:
            return False
        return not table.steps and table.emptied == START and table.table.full_name == name

    def bind(self, name: str, table: TableHistory | None) -> None:
        super().bind(name, table)
        self._names.setdefault(name, []).append((self._order, table))

    def create(self, spec: TableSpec) -> TableHistory:
        return self._new(len(spec.columns))

    def change_column(self, table: TableHistory, change: wire.ColumnChange) -> None:
        table.add(self._order, step_of(change))

    def truncate(self, table: TableHistory) -> None:
        table.emptied = self._order

    # A history has no rows: they are too many for one task, which is why `fold` sorts and folds them by key.

    def insert(self, table: TableHistory, relation: Relation, row: JsonObject) -> None:
        pass

    def update(self, table: TableHistory, relation: Relation, old_key: JsonObject | None, row: JsonObject) -> None:
        pass

    def delete(self, table: TableHistory, relation: Relation, key: JsonObject) -> None:
        pass

    def _new(self, width: int) -> TableHistory:
        created = TableHistory(len(self.numbered), width)
        self.numbered.append(created)
        return created
