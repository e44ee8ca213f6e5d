"""Decodes the rows of spool parts into parameters for SQLite, a block at a time. Pure.

All rows of a part are inserts into one table, so the text before each row is the same. A block is split at that text,
and its rows are parsed as one JSON array: measured, that takes a third of the time of parsing message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

import orjson

from changesource_sdk.errors import SnapshotGone
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.schema import Table
from protocol import values
from protocol.framing import unframe

Parameters: TypeAlias = tuple[object, ...]
"""The values of one row in the order of the table's columns, as SQLite takes them."""

_JSON_KINDS = ("json", "array")
_SCALAR_KINDS = ("integer", "number", "boolean", "string", "uuid")
_TEXTS = {str, type(None)}
_END = b"}]"
_USUAL_HEADER = 4
"""Bytes before a message of 126 to 65,535 bytes (`protocol.framing`)."""


class RowDecoder:
    """Decodes rows of one table. zero-cache stores the same values for them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names = list(table.column_names)
        self._json = {column.name for column in table.columns if column.kind in _JSON_KINDS}
        # The columns whose values may need `value`: the encoder makes scalars of all others.
        self._checked = [at for at, column in enumerate(table.columns) if column.kind not in _SCALAR_KINDS]
        self._head = b'["data",{"tag":"insert","relation":%s,"new":' % TableEncoder(table).relation

    def block(self, frames: bytes) -> list[Parameters]:
        """Return the rows in a block of a spool part. Raises `SnapshotGone` if there is anything else."""
        rows = self._usual_rows(frames)
        if rows is None:
            rows = self._any_rows(frames)
        if list(chain.from_iterable(rows)) != self._names * len(rows):
            return [self.row(row) for row in rows]
        decoded: list[Parameters] = [tuple(row.values()) for row in rows]
        return decoded if self._are_storable(decoded) else [self.row(row) for row in rows]

    def row(self, row: dict[str, object]) -> Parameters:
        """Return one row, whatever the order of its columns; missing ones become null."""
        return tuple(self.value(name, row.get(name)) for name in self._names)

    def value(self, name: str, value: object) -> object:
        """Return the value of a column as it is stored: JSON that arrived as text is not changed."""
        if value is None or isinstance(value, str):
            return value
        if name in self._json or isinstance(value, dict | list):
            return values.dumps(value).decode()
        return value

    def _are_storable(self, rows: Sequence[Parameters]) -> bool:
        """Whether no value needs `value`: JSON has arrived as text."""
        return all(set(map(type, map(itemgetter(at), rows))) <= _TEXTS for at in self._checked)

    def _usual_rows(self, frames: bytes) -> list[dict[str, object]] | None:
        """Return the rows if all frames have headers of the usual size; None if not, which shows as invalid JSON."""
        first, *pieces = (frames + bytes(_USUAL_HEADER)).split(self._head)
        if len(first) != _USUAL_HEADER:
            return None
        unwanted = len(_END) + _USUAL_HEADER
        try:
            rows: list[dict[str, object]] = orjson.loads(b"[%s]" % b",".join([each[:-unwanted] for each in pieces]))
        except orjson.JSONDecodeError:
            return None
        return rows if len(rows) == len(pieces) else None

    def _any_rows(self, frames: bytes) -> list[dict[str, object]]:
        """Return the rows of any frames, message by message."""
        rows = []
        for payload in unframe(frames):
            if not payload.startswith(self._head) or not payload.endswith(_END):
                raise self._unreadable()
            rows.append(orjson.loads(payload[len(self._head) : -len(_END)]))
        return rows

    def _unreadable(self) -> SnapshotGone:
        return SnapshotGone(
            "frames-unreadable",
            f"a part of table {self._table.full_name} has something else than its rows",
            fix="report this; the log and its snapshots are served as before",
        )


def sort_key(table: Table) -> Callable[[Parameters], object] | None:
    """Return the function that gives a row's key; None for a table without key, whose rows stay as they come."""
    if not table.key:
        return None
    return itemgetter(*(table.column_names.index(name) for name in table.key))


def comparable(key: object) -> object:
    """Return a key that compares with any other of its table, in SQLite's order: null, numbers, texts, blobs."""
    parts = key if isinstance(key, tuple) else (key,)
    return tuple((_rank(part), part if part is not None else 0) for part in parts)


def _rank(value: object) -> int:
    match value:
        case None:
            return 0
        case int() | float():
            return 1
        case str():
            return 2
        case _:
            return 3
