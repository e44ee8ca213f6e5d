"""Rows as a consumer has them after what it was sent, for the endpoint check: folded, counted, copied and compared.

The check compares a later snapshot with an earlier one plus the changes in between. Contract: `take` gets committed
changes only and never fails, because the rules (`protocol.rules`) report what is wrong with a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from protocol import changes as wire
from protocol.fold.indexes import Indexes
from protocol.fold.rows import FoldedTables, Key
from protocol.specs import JsonObject


class FoldedRows(FoldedTables):
    """Rows by table and key."""

    def __init__(self) -> None:
        super().__init__()
        # Tables with a row change that had no key columns: their rows cannot be distinguished. Written by `take`.
        self.incomparable: set[str] = set()

    def copy(self) -> FoldedRows:
        """An independent copy."""
        made = FoldedRows()
        made.tables = {name: {key: dict(row) for key, row in rows.items()} for name, rows in self.tables.items()}
        made.indexes = Indexes(self.indexes)
        made.incomparable = set(self.incomparable)
        return made

    @property
    def count(self) -> int:
        """The number of rows of all tables."""
        return sum(map(len, self.tables.values()))

    def take(self, change: wire.Change) -> None:
        """Apply a change if that is possible."""
        if isinstance(change, wire.Insert | wire.Update | wire.Delete) and not change.relation.key.columns:
            self.incomparable.add(change.relation.replica_name)
        try:
            self.apply_change(change)
        except (KeyError, TypeError, ValueError):
            # A key column is missing or not a plain value, or a default is not understood: the rules have noted it.
            return

    def differences(self, other: FoldedRows, *, here: str, there: str) -> Iterator[str]:
        """One sentence for each row that differs; they call this side `here` and the other `there`.

        A JSON value and its text count as equal.
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
    """The value of a JSON text: JSON columns travel as values or as texts, depending on the `begin` message."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
