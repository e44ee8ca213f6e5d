"""Topics of keys and rows: a record is the current row of its key, a tombstone deletes it. Pure.

The value is a JSON object of columns; key columns that it lacks are taken from the record's key, which is an object,
or a single value where the table's key is one column. Compaction changes nothing: what it removes is overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from adapters.kafka.records.catalog import TopicTable
from adapters.kafka.records.decoding import Decoded, Payload, Unreadable
from changesource_sdk import Delete, Insert, Row


class Rows(Protocol):
    """What a format needs of `reading.TopicReading`."""

    @property
    def table(self) -> TopicTable:
        """The current table."""

    def row(self, fields: Payload) -> Payload:
        """The fields as a row of the table."""

    def key(self, data: bytes | None) -> Payload | None:
        """The columns of a record's key."""

    def check_key(self, data: bytes | None, row: Row) -> None:
        """Raise `Unreadable` unless a record's key is that of its row, or need not be."""

    @property
    def has_own_key(self) -> bool:
        """Whether the key is in the value and the record's key is ignored."""


class UpsertFormat:
    """Records that are rows."""

    def row_schema(self, schema: Mapping[str, object]) -> Mapping[str, object] | None:
        """The schema of the row in the schema of a value."""
        return schema

    def image(self, payload: object) -> Payload | None:
        """The row in a value; None if there is none."""
        return payload if isinstance(payload, dict) else None

    def tombstone(self, rows: Rows, key: bytes | None) -> Decoded:
        if rows.has_own_key:
            raise Unreadable("it is a tombstone, and with key_mismatch=value its key does not say which row to delete")
        try:
            columns = rows.key(key)
            if columns is None:
                raise Unreadable("it has neither key nor value")
            return Decoded((Delete(rows.table.table.full_name, whole_key(rows, columns)),))
        except Unreadable as error:
            raise Unreadable(f"a tombstone that names no row: {error.reason}", is_mismatch=key is not None) from error

    def record(self, rows: Rows, key: bytes | None, value: bytes, payload: object) -> Decoded:
        if payload is None:
            return self.tombstone(rows, key)
        if not isinstance(payload, dict):
            raise Unreadable(f"its value is {type(payload).__name__}, not an object of columns")
        names = rows.table.table.key
        if not all(map(payload.__contains__, names)):
            columns = rows.key(key)
            if columns is None:
                raise Unreadable(f"neither key nor value has {', '.join(names)}")
            payload = {**whole_key(rows, columns, read=False), **payload}
        row = rows.row(payload)
        rows.check_key(key, row)
        return Decoded((Insert(rows.table.table.full_name, row),))


def whole_key(rows: Rows, fields: Payload, *, read: bool = True) -> Payload:
    """The key columns only. Raises `Unreadable` if one is missing."""
    names = rows.table.table.key
    missing = [name for name in names if fields.get(name) is None]
    if missing:
        raise Unreadable(f"its key lacks {', '.join(missing)}")
    columns = {name: fields[name] for name in names}
    return rows.row(columns) if read else columns
