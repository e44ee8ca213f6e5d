"""Decodes the rows of spool parts into parameters for SQLite, a block at a time. Pure.

All rows of a part are inserts into one table, so the text before each row is the same. It is skipped, and the rows of
a block are parsed as one JSON array: measured, that takes a third of the time of parsing message by message.
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

Parameters: TypeAlias = tuple[object, ...]
"""The values of one row in the order of the table's columns, as SQLite takes them."""

_JSON_KINDS = ("json", "array")
_LENGTH_16, _LENGTH_64 = 126, 127
_END = b"}]"


class RowDecoder:
    """Decodes rows of one table. zero-cache stores the same values for them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names = list(table.column_names)
        self._json = {column.name for column in table.columns if column.kind in _JSON_KINDS}
        self._json_positions = [at for at, name in enumerate(self._names) if name in self._json]
        self._head = b'["data",{"tag":"insert","relation":%s,"new":' % TableEncoder(table).relation

    def block(self, frames: bytes) -> list[Parameters]:
        """Return the rows in a block of a spool part. Raises `SnapshotGone` if there is anything else."""
        rows = self._parsed(self._texts(frames))
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
        """Whether no value needs `value`: outside of JSON columns there are no objects, inside only texts."""
        kinds = set(map(type, chain.from_iterable(rows)))
        if dict in kinds or list in kinds:
            return False
        texts = {str, type(None)}
        return all(set(map(type, map(itemgetter(at), rows))) <= texts for at in self._json_positions)

    def _parsed(self, texts: list[bytes]) -> list[dict[str, object]]:
        text = b"[%s]" % b",".join(texts)
        rows = orjson.loads(text)
        if len(rows) != len(texts):
            raise self._unreadable()
        return rows  # type: ignore[no-any-return]

    def _texts(self, frames: bytes) -> list[bytes]:
        """Return the JSON text of each row; the frames are those of `protocol.framing`."""
        head, skipped = self._head, len(self._head)
        texts: list[bytes] = []
        offset, end = 0, len(frames)
        while offset < end:
            size = frames[offset + 1]
            if size < _LENGTH_16:
                start = offset + 2
            elif size < _LENGTH_64:
                start = offset + 4
                size = frames[offset + 2] << 8 | frames[offset + 3]
            else:
                start = offset + 10
                size = int.from_bytes(frames[offset + 2 : start], "big")
            offset = start + size
            if not frames.startswith(head, start) or not frames.endswith(_END, start, offset):
                raise self._unreadable()
            texts.append(frames[start + skipped : offset - 2])
        return texts

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
