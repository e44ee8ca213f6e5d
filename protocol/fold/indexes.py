"""The indexes of a consumer's replica, and how they follow changes of their tables.

Shared by `TableFold` and by the replica's catalog in `reference_cache`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from protocol.specs import IndexSpec

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class FoldedIndex:
    """An index by its name in the replica. `columns` maps names to `ASC` or `DESC`; their order counts."""

    name: str
    table: str
    unique: bool
    columns: Mapping[str, str]


class Indexes(dict[str, FoldedIndex]):
    """Indexes by name, in the order in which they were created. Nothing here refuses a change."""

    def of(self, table: str) -> list[FoldedIndex]:
        """The indexes of a table."""
        return [index for index in self.values() if index.table == table]

    def create(self, spec: IndexSpec) -> FoldedIndex:
        """Add an index, or replace the one of the same name."""
        name = spec.replica_name
        index = self[name] = FoldedIndex(name, spec.replica_table, spec.unique, dict(spec.columns))
        return index

    def drop(self, name: str) -> FoldedIndex | None:
        """Remove an index; None if there is no such index."""
        return self.pop(name, None)

    def drop_table(self, table: str) -> None:
        """Remove the indexes of a table."""
        for index in self.of(table):
            del self[index.name]

    def rename_table(self, old: str, new: str) -> None:
        """Attach the indexes of a table to its new name; they keep their own names."""
        for index in self.of(old):
            self[index.name] = replace(index, table=new)

    def rename_column(self, table: str, old: str, new: str) -> None:
        """Rename a column in the indexes of its table."""
        for index in self.of(table):
            self[index.name] = replace(index, columns=renamed(index.columns, old, new))


def renamed(mapping: Mapping[str, V], old: str, new: str) -> dict[str, V]:
    """The mapping with one key renamed in place; the same mapping if there is no such key."""
    return {new if name == old else name: value for name, value in mapping.items()}
