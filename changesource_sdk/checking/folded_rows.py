"""Rows as a consumer has them after the changes it was sent: plain dicts, by table and key.

The checker compares a later snapshot with an earlier one plus what followed. Contract: `apply` is told of committed
changes only, and never fails: what is wrong with a change is for the rules to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from protocol.changes import (
    AddColumn,
    Change,
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


class FoldedRows:
    """`tables` holds each table's rows by key; `partial` names those that cannot be compared: their columns changed,
    or they have no key.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[Key, JsonObject]] = {}
        self.partial: set[str] = set()

    def copy(self) -> FoldedRows:
        """The same rows, to be changed on their own."""
        made = FoldedRows()
        made.tables = {name: dict(rows) for name, rows in self.tables.items()}
        made.partial = set(self.partial)
        return made

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(map(len, self.tables.values()))

    def apply(self, change: Change) -> None:
        """Take a change in."""
        match change:
            case Insert():
                self._table(change.relation)[_key(change.relation, change.new)] = dict(change.new)
            case Update():
                self._update(change)
            case Delete():
                self._table(change.relation).pop(_key(change.relation, change.key), None)
            case Truncate():
                for relation in change.relations:
                    self._table(relation).clear()
            case RenameTable():
                self.tables[change.new.replica_name] = self.tables.pop(change.old.replica_name, {})
            case DropTable():
                self.tables.pop(change.id.replica_name, None)
            case AddColumn() | UpdateColumn() | DropColumn():
                self.partial.add(change.table.replica_name)
            case _:
                pass

    def _update(self, change: Update) -> None:
        table = self._table(change.relation)
        new_key = _key(change.relation, change.new)
        old = table.pop(_key(change.relation, change.key), {}) if change.key else table.get(new_key, {})
        table[new_key] = {**old, **change.new}

    def _table(self, relation: Relation) -> dict[Key, JsonObject]:
        if not relation.key.columns:
            self.partial.add(relation.replica_name)
        return self.tables.setdefault(relation.replica_name, {})

    def differences(self, other: FoldedRows, *, here: str, there: str) -> Iterator[str]:
        """Where `other` has other rows, as sentences that call the two `here` and `there`; a JSON value and its text
        count as the same.
        """
        names = (self.tables.keys() | other.tables.keys()) - self.partial - other.partial
        for name in sorted(names):
            mine, theirs = self.tables.get(name, {}), other.tables.get(name, {})
            for key in sorted(mine.keys() | theirs.keys(), key=str):
                if key not in theirs:
                    yield f"{name} {_shown(key)} is in {here} and not in {there}"
                elif key not in mine:
                    yield f"{name} {_shown(key)} is in {there} and not in {here}"
                elif column := _differing(mine[key], theirs[key]):
                    yield f"{name} {_shown(key)} has another {column} in {there} than in {here}"


def _key(relation: Relation, row: JsonObject) -> Key:
    # A key column that is missing is a broken rule of its own; it must not stop the fold.
    return tuple(_hashable(row.get(column)) for column in relation.key.columns)


def _hashable(value: object) -> object:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def _shown(key: Key) -> str:
    return json.dumps(key[0] if len(key) == 1 else list(key), ensure_ascii=False, default=str)


def _differing(mine: JsonObject, theirs: JsonObject) -> str | None:
    for column in sorted(mine.keys() | theirs.keys()):
        one, two = mine.get(column), theirs.get(column)
        if one != two and _parsed(one) != _parsed(two):
            return column
    return None


def _parsed(value: object) -> object:
    """What a JSON text says: JSON columns travel as values or as texts, as each transaction likes."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
