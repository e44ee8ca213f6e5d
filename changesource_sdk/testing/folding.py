"""Changes folded into plain dicts: what a consumer's tables hold after what it was sent.

The fake cache folds what an endpoint streams, the conformance suite what a log holds. Rows are as they travelled: JSON
documents are text, times are numbers. How zero-cache stores them is not shown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from changesource_sdk.pipeline.encoding.replica_values import default_value
from protocol.changes import (
    AddColumn,
    Change,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    RenameTable,
    Truncate,
    Update,
    UpdateColumn,
)
from protocol.specs import JsonObject, Relation

Key = tuple[object, ...]
Rows = dict[Key, JsonObject]


class FoldedTables:
    """Tables by their name in the replica, rows by their key. Invariant: what was applied, in order, and no more."""

    def __init__(self) -> None:
        self.tables: dict[str, Rows] = {}

    def apply(self, changes: Iterable[Change]) -> None:
        """Take in the changes of a transaction."""
        for change in changes:
            self._apply(change)

    def _apply(self, change: Change) -> None:
        match change:
            case Insert():
                self._table(change.relation)[key_of(change.relation, change.new)] = dict(change.new)
            case Update():
                self._update(change)
            case Delete():
                self._table(change.relation).pop(key_of(change.relation, change.key), None)
            case Truncate():
                for relation in change.relations:
                    self._table(relation).clear()
            case CreateTable():
                self.tables.setdefault(change.spec.replica_name, {})
            case RenameTable():
                self.tables[change.new.replica_name] = self.tables.pop(change.old.replica_name, {})
            case DropTable():
                self.tables.pop(change.id.replica_name, None)
            case AddColumn() | UpdateColumn() | DropColumn():
                self._change_column(change)
            case _:
                pass

    def _update(self, change: Update) -> None:
        table = self._table(change.relation)
        new_key = key_of(change.relation, change.new)
        old = table.pop(key_of(change.relation, change.key), {}) if change.key else table.get(new_key, {})
        table[new_key] = {**old, **change.new}

    def _change_column(self, change: AddColumn | UpdateColumn | DropColumn) -> None:
        for row in self.tables.get(change.table.replica_name, {}).values():
            match change:
                case AddColumn():
                    row.setdefault(change.column.name, default_value(change.column.spec))
                case UpdateColumn():
                    row[change.new.name] = row.pop(change.old.name, None)
                case DropColumn():
                    row.pop(change.column, None)

    def _table(self, relation: Relation) -> Rows:
        return self.tables.setdefault(relation.replica_name, {})


def rows_of(changes: Iterable[Change]) -> Iterator[tuple[str, Key]]:
    """The rows that changes touch, by table and key; one whose key changes is two."""
    for change in changes:
        match change:
            case Insert() | Update():
                yield change.relation.replica_name, key_of(change.relation, change.new)
                if isinstance(change, Update) and change.key:
                    yield change.relation.replica_name, key_of(change.relation, change.key)
            case Delete():
                yield change.relation.replica_name, key_of(change.relation, change.key)
            case _:
                pass


def key_of(relation: Relation, row: JsonObject) -> Key:
    """The key of a row."""
    return tuple(row[column] for column in relation.key.columns)
