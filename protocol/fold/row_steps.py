"""What a column change does to a row that was written before it.

A row is written once and may outlive many column changes. Each becomes a step that rows go through, with the values
that a replica in SQLite would then hold (`replica_values`). Steps are small and picklable, because compaction sends
them to its tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from protocol import changes as wire
from protocol.fold.replica_values import converted, declared_type, default_value
from protocol.specs import Column, JsonObject


@dataclass(frozen=True, slots=True)
class Added:
    """Rows have one more column, with this value."""

    columns: ClassVar[int] = 1
    column: str
    value: object

    def apply(self, row: JsonObject) -> None:
        """Bring a row forward, in place."""
        row[self.column] = self.value


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows have lost a column."""

    columns: ClassVar[int] = -1
    column: str

    def apply(self, row: JsonObject) -> None:
        """Bring a row forward, in place."""
        row.pop(self.column, None)


@dataclass(frozen=True, slots=True)
class Changed:
    """A column has another name; with `types` (old, new), its values are converted too."""

    columns: ClassVar[int] = 0
    old: str
    new: str
    types: tuple[str, str] | None

    def apply(self, row: JsonObject) -> None:
        """Bring a row forward, in place; one that does not have the column stays as it is."""
        if self.old in row:
            value = row.pop(self.old)
            row[self.new] = converted(value, *self.types) if self.types else value


Step: TypeAlias = Added | Dropped | Changed
"""`columns` is by how many columns a row becomes wider."""


def step_of(change: wire.ColumnChange) -> Step:
    """The step of a column change; ValueError if a column is added with a default that no consumer understands."""
    if isinstance(change, wire.AddColumn):
        return Added(change.column.name, default_value(change.column.spec))
    if isinstance(change, wire.DropColumn):
        return Dropped(change.column)
    return Changed(change.old.name, change.new.name, _types(change.old, change.new))


def _types(old: Column, new: Column) -> tuple[str, str] | None:
    types = declared_type(old.spec), declared_type(new.spec)
    return types if types[0] != types[1] else None
