"""Rows as a consumer has them after what it was sent, for the checker: folded, counted, copied and compared.

The checker compares a later snapshot with an earlier one plus what followed. Contract: `take` is told of committed
changes only, and never fails: what is wrong with a change is for the rules to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from changesource_sdk.testing.folding import FoldedTables, Key
from protocol.changes import Change, Delete, Insert, Update
from protocol.specs import JsonObject


class FoldedRows(FoldedTables):
    """Rows by table and key. `incomparable` names tables whose rows have no key to tell them apart by."""

    def __init__(self) -> None:
        super().__init__()
        self.incomparable: set[str] = set()

    def copy(self) -> FoldedRows:
        """The same rows, to be changed on their own."""
        made = FoldedRows()
        made.tables = {name: {key: dict(row) for key, row in rows.items()} for name, rows in self.tables.items()}
        made.incomparable = set(self.incomparable)
        return made

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(map(len, self.tables.values()))

    def take(self, change: Change) -> None:
        """Take a change in, as far as it can be."""
        if isinstance(change, Insert | Update | Delete) and not change.relation.key.columns:
            self.incomparable.add(change.relation.replica_name)
        try:
            self.apply([change])
        except (KeyError, TypeError):
            return  # a key column is missing, or is no plain value: a broken rule, already noted

    def differences(self, other: FoldedRows, *, here: str, there: str) -> Iterator[str]:
        """Where `other` has other rows, as sentences that call the two `here` and `there`; a JSON value and its text
        count as the same.
        """
        names = (self.tables.keys() | other.tables.keys()) - self.incomparable - other.incomparable
        for name in sorted(names):
            mine, theirs = self.tables.get(name, {}), other.tables.get(name, {})
            for key in sorted(mine.keys() | theirs.keys(), key=str):
                if key not in theirs:
                    yield f"{name} {_shown(key)} is in {here} and not in {there}"
                elif key not in mine:
                    yield f"{name} {_shown(key)} is in {there} and not in {here}"
                elif column := _differing(mine[key], theirs[key]):
                    yield f"{name} {_shown(key)} has another {column} in {there} than in {here}"


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
