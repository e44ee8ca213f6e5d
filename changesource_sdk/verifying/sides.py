"""Rows of one stage at one watermark, their digests, and the differences between two stages. Pure.

Rows are compared by meaning: replicas store booleans as numbers, format JSON in different ways, and a null column
equals a missing one. The digest of a table does not depend on the order of its rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import orjson

Key = tuple[object, ...]
Row = dict[str, object]
Rows = dict[Key, Row]

DIGEST_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Side:
    """What a stage holds. Invariant: keys and rows are in the form `canonical_row` gives."""

    name: str
    watermark: str
    tables: Mapping[str, Rows]
    left_out: int = 0  # rows that no consumer can hold, and that are not compared


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that two stages do not agree on; `column` is empty for one that only the other stage has."""

    table: str
    key: Key
    column: str = ""
    expected: object = None
    actual: object = None
    there: str = ""

    def as_json(self) -> dict[str, object]:
        """For machines."""
        row = {"table": self.table, "key": list(self.key)}
        if self.column:
            return {**row, "column": self.column, "expected": self.expected, "found": self.actual}
        return {**row, "only": self.there}


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """One table on two stages; a stage without the table has no digest."""

    table: str
    expected_rows: int
    found_rows: int
    expected_digest: str
    found_digest: str
    differences: tuple[RowDifference, ...] = field(default=(), repr=False)

    @property
    def is_same(self) -> bool:
        return self.expected_digest == self.found_digest


def canonical_row(row: Mapping[str, object], json_columns: Iterable[str]) -> Row:
    """The row as it is compared: nulls left out, numbers and JSON in one spelling."""
    documents = set(json_columns)
    return {
        name: _canonical(value, is_json=name in documents) for name, value in sorted(row.items()) if value is not None
    }


def canonical_key(row: Row, columns: Iterable[str]) -> Key:
    """The key of a canonical row."""
    return tuple(row.get(column) for column in columns)


def _canonical(value: object, *, is_json: bool) -> object:
    if is_json and isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.hex() if isinstance(value, bytes) else value


def digest(rows: Rows) -> str:
    """A digest of rows that does not depend on their order."""
    total = 0
    for row in rows.values():
        text = orjson.dumps(row, option=orjson.OPT_SORT_KEYS, default=str)
        total += int.from_bytes(hashlib.sha256(text).digest(), "big")
    return hashlib.sha256(f"{len(rows)}:{total:x}".encode()).hexdigest()[:DIGEST_CHARACTERS]


def compare(expected: Side, actual: Side) -> list[TableVerdict]:
    """Every table that either stage has, in order of name."""
    return [_verdict(name, expected, actual) for name in sorted(expected.tables.keys() | actual.tables.keys())]


def _verdict(name: str, expected: Side, actual: Side) -> TableVerdict:
    ours, theirs = expected.tables.get(name), actual.tables.get(name)
    digests = ("" if ours is None else digest(ours), "" if theirs is None else digest(theirs))
    differing = () if digests[0] == digests[1] else tuple(_differences(name, expected, actual))
    return TableVerdict(name, len(ours or {}), len(theirs or {}), *digests, differing)


def _differences(name: str, expected: Side, actual: Side) -> Iterator[RowDifference]:
    ours, theirs = expected.tables.get(name, {}), actual.tables.get(name, {})
    for key in sorted(ours.keys() | theirs.keys(), key=repr):
        if key not in theirs:
            yield RowDifference(name, key, there=expected.name)
        elif key not in ours:
            yield RowDifference(name, key, there=actual.name)
        else:
            for column in sorted(ours[key].keys() | theirs[key].keys()):
                one, other = ours[key].get(column), theirs[key].get(column)
                if one != other:
                    yield RowDifference(name, key, column, one, other)
