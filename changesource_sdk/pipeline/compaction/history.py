"""How the tables of a log changed from one snapshot to a later point: what old rows must go through to be current.

A row is written once and may outlive many schema changes. Its table is known by the name it had at that moment; the
history finds the same table at the end, under whatever name, and brings the row forward: columns added, dropped,
renamed, converted. What was dropped or emptied later is known to be gone, so nobody carries it along. Pure, small
(schema changes and truncations only) and picklable, so that every task of a compaction has it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.replica_values import converted, declared_type, default_value
from changesource_sdk.schema import Table
from protocol import changes as wire
from protocol.specs import Column

WireRow: TypeAlias = Mapping[str, object]
"""Column names to JSON values, as they travel."""

Order: TypeAlias = tuple[str, int]
"""When a change happened: the watermark of its transaction, and its number within."""

START: Order = ("", 0)
"""The order of everything that is in the snapshot."""


@dataclass(frozen=True, slots=True)
class Added:
    """Rows got a column with this value."""

    column: str
    value: object


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows lost a column."""

    column: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A column has another name, and its values were converted if there are types."""

    old: str
    new: str
    types: tuple[str, str] | None


Step: TypeAlias = Added | Dropped | Changed


@dataclass(slots=True)
class TableHistory:
    """One table from its creation, or the snapshot, on; renaming does not make another. `table` is what it is at the
    end, None if it was dropped.
    """

    number: int
    width: int
    table: Table | None = None
    emptied: Order = START
    steps: list[tuple[Order, Step]] = field(default_factory=list)
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
                _take(step, current)
        return current

    def _add(self, order: Order, step: Step) -> None:
        self.steps.append((order, step))
        width = self.widths[-1][1] if self.widths else self.width
        change = {Added: 1, Dropped: -1, Changed: 0}[type(step)]
        self.widths.append((order, width + change))


def _take(step: Step, row: dict[str, object]) -> None:
    match step:
        case Added(column, value):
            row[column] = value
        case Dropped(column):
            row.pop(column, None)
        case Changed(old, new, types):
            if old in row:
                value = row.pop(old)
                row[new] = converted(value, *types) if types else value


class History:
    """All tables that were there at some moment. Names are those of the replica."""

    def __init__(
        self, base: ConsumerSchema, events: Iterable[tuple[Order, wire.Change]], final: ConsumerSchema
    ) -> None:
        self.tables: list[TableHistory] = []
        self._names: dict[str, list[tuple[Order, TableHistory | None]]] = {}
        for name, table in base.tables.items():
            self._create(START, name, len(table.columns))
        for order, change in events:
            self._apply(order, change)
        for name, table in final.tables.items():
            if (found := self._current(name)) is not None:
                found.table = table

    def at(self, name: str, order: Order) -> TableHistory | None:
        """The table that had this name then."""
        known = self._names.get(name, [])
        place = bisect_right(known, order, key=lambda entry: entry[0])
        return known[place - 1][1] if place else None

    def widths(self, name: str) -> set[int]:
        """All numbers of columns that tables had that ever went by this name."""
        tables = [table for _, table in self._names.get(name, []) if table is not None]
        return {width for table in tables for width in (table.width, *(width for _, width in table.widths))}

    def unchanged(self, name: str) -> bool:
        """Whether this table of the snapshot kept its name, its columns and all of its rows, as far as known here."""
        found = self.at(name, START)
        if found is None or found.table is None:
            return False
        return not found.steps and found.emptied == START and found.table.full_name == name

    def _apply(self, order: Order, change: wire.Change) -> None:
        match change:
            case wire.CreateTable():
                self._create(order, change.spec.replica_name, len(change.spec.columns))
            case wire.DropTable():
                self._set(order, change.id.replica_name, None)
            case wire.RenameTable():
                found = self._current(change.old.replica_name)
                self._set(order, change.old.replica_name, None)
                self._set(order, change.new.replica_name, found)
            case wire.Truncate():
                for relation in change.relations:
                    if (emptied := self._current(relation.replica_name)) is not None:
                        emptied.emptied = order
            case wire.AddColumn() | wire.DropColumn() | wire.UpdateColumn():
                if (altered := self._current(change.table.replica_name)) is not None:
                    altered._add(order, _step(change))

    def _create(self, order: Order, name: str, width: int) -> None:
        created = TableHistory(len(self.tables), width)
        self.tables.append(created)
        self._set(order, name, created)

    def _set(self, order: Order, name: str, table: TableHistory | None) -> None:
        self._names.setdefault(name, []).append((order, table))

    def _current(self, name: str) -> TableHistory | None:
        known = self._names.get(name)
        return known[-1][1] if known else None


def _step(change: wire.AddColumn | wire.DropColumn | wire.UpdateColumn) -> Step:
    match change:
        case wire.AddColumn():
            return Added(change.column.name, default_value(change.column.spec))
        case wire.DropColumn():
            return Dropped(change.column)
        case wire.UpdateColumn():
            return Changed(change.old.name, change.new.name, _types(change.old, change.new))


def _types(old: Column, new: Column) -> tuple[str, str] | None:
    types = declared_type(old.spec), declared_type(new.spec)
    return types if types[0] != types[1] else None
