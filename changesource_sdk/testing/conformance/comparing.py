"""Comparing what arrived with what was written, and saying the difference in the author's words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import orjson

from changesource_sdk.testing.conformance.history import Document, Expected, State
from protocol.fold.rows import Key, Rows

Kind = Literal["missing", "extra", "different"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that is not as it should be, or a whole table if it has no key; `column` is the first that differs."""

    kind: Kind
    table: str
    key: Key
    column: str = ""
    expected: object = None
    arrived: object = None

    def __str__(self) -> str:
        row = f"row {shown_key(self.key)} of {self.table}" if self.key else f"table {self.table}"
        match self.kind:
            case "missing":
                return f"{row} is missing"
            case "extra":
                return f"{row} is there but should not be"
            case "different":
                return (
                    f"{row}: column {self.column} is {shown(self.arrived)} and should be {shown(self.expected)}"
                    f"{self._hint()}"
                )

    def _hint(self) -> str:
        if isinstance(self.expected, Document) and isinstance(self.arrived, str):
            try:
                inner = orjson.loads(self.arrived)
            except orjson.JSONDecodeError:
                inner = None
            if isinstance(inner, str) and self.expected.equals(inner):
                return "; it is JSON text inside a JSON string: give the parsed value, or wrap the text in JsonText"
        if self.expected is None:
            return "; an Update that leaves a column out keeps its value: give the null"
        if self.arrived is None:
            return (
                "; an Insert that leaves a column out sets it to null: give the whole row, or an Update, which keeps it"
            )
        return ""


def shown(value: object) -> str:
    """A value for a message, shortened."""
    text = repr(value.value if isinstance(value, Document) else value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def shown_key(key: Key) -> str:
    """A key for a message."""
    return ", ".join(map(shown, key))


def same_value(expected: object, arrived: object) -> bool:
    """Whether a value arrived: exactly, but for the last bit of a fraction and the spelling of JSON."""
    if isinstance(expected, Document):
        return expected.equals(arrived)
    if isinstance(expected, bool):
        return isinstance(arrived, int) and expected == arrived
    if isinstance(arrived, bool):
        return False
    if isinstance(expected, float) and isinstance(arrived, int | float):
        return math.isclose(expected, arrived, rel_tol=1e-12)
    return (type(expected) is type(arrived) and expected == arrived) or _same_number(expected, arrived)


def _same_number(expected: object, arrived: object) -> bool:
    return isinstance(expected, int | float) and isinstance(arrived, int | float) and expected == arrived


def same_row(expected: Expected, arrived: Mapping[str, object]) -> bool:
    """Whether all compared columns arrived."""
    return all(column in arrived and same_value(value, arrived[column]) for column, value in expected.items())


def same_state(expected: State, arrived: Mapping[str, Rows]) -> bool:
    """Whether a replica is in this state; tables that the suite did not write to do not count."""
    for name, rows in expected.items():
        there = arrived.get(name, {})
        if rows.keys() != there.keys() or not all(same_row(row, there[key]) for key, row in rows.items()):
            return False
    return True


def differences(expected: State, arrived: Mapping[str, Rows]) -> Iterator[Difference]:
    """Every row that is not as it should be."""
    for name, rows in expected.items():
        there = arrived.get(name, {})
        for key in rows.keys() - there.keys():
            yield Difference("missing", name, key)
        for key in there.keys() - rows.keys():
            yield Difference("extra", name, key)
        for key in rows.keys() & there.keys():
            yield from _different_columns(name, key, rows[key], there[key])


def _different_columns(name: str, key: Key, expected: Expected, arrived: Mapping[str, object]) -> Iterator[Difference]:
    for column, value in expected.items():
        if column not in arrived or not same_value(value, arrived[column]):
            yield Difference("different", name, key, column, value, arrived.get(column))
            return
