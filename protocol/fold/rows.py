"""Rows as a consumer has them after the changes it was sent, in plain dicts.

The fake cache folds what an endpoint streams; `verify` and the conformance suite fold what a log contains. Rows keep
the form in which they travelled: JSON documents are text, times are numbers. How zero-cache stores them is not
modelled, except for values that an `add-column` or `update-column` changes (`row_steps`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol import changes as wire
from protocol.fold.row_steps import step_of
from protocol.fold.tables import TableFold
from protocol.specs import JsonObject, Relation, TableSpec

Key = tuple[object, ...]
"""The values of the key columns, in the order of the relation's key."""

Rows = dict[Key, JsonObject]


class FoldedTables(TableFold[Rows]):
    """Rows by key, by table. Raises KeyError for a row without its key columns.

    A change may name a table that was never created: part of a stream can be folded without its schema.
    """

    def table(self, name: str) -> Rows:
        return self.tables.setdefault(name, {})

    def create(self, spec: TableSpec) -> Rows:
        return {}

    def insert(self, table: Rows, relation: Relation, row: JsonObject) -> None:
        table[key_of(relation, row)] = dict(row)

    def update(self, table: Rows, relation: Relation, old_key: JsonObject | None, row: JsonObject) -> None:
        new_key = key_of(relation, row)
        old = table.pop(key_of(relation, old_key), {}) if old_key else table.get(new_key, {})
        table[new_key] = {**old, **row}

    def delete(self, table: Rows, relation: Relation, key: JsonObject) -> None:
        table.pop(key_of(relation, key), None)

    def truncate(self, table: Rows) -> None:
        table.clear()

    def change_column(self, table: Rows, change: wire.ColumnChange) -> None:
        if table:
            step = step_of(change)
            for row in table.values():
                step.apply(row)


def rows_of(changes: Iterable[wire.Change]) -> Iterator[tuple[str, Key]]:
    """The rows that changes touch, by table and key; an update with an old key touches two."""
    for change in changes:
        match change:
            case wire.Insert() | wire.Update():
                yield change.relation.replica_name, key_of(change.relation, change.new)
                if isinstance(change, wire.Update) and change.key:
                    yield change.relation.replica_name, key_of(change.relation, change.key)
            case wire.Delete():
                yield change.relation.replica_name, key_of(change.relation, change.key)
            case _:
                pass


def key_of(relation: Relation, row: JsonObject) -> Key:
    """The key of a row; KeyError if a key column is missing."""
    return tuple(row[column] for column in relation.key.columns)
