"""Plain topics of keys and rows: a record is the row of its key now, a tombstone deletes it. Pure.

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
    """The topic's rows and keys, as `reading.TopicReading` gives them."""

    @property
    def table(self) -> TopicTable:
        """The table as it is now."""

    def row(self, fields: Payload) -> Payload:
        """The fields as a row of the table."""

    def key(self, data: bytes | None) -> Payload | None:
        """The columns of a record's key."""

    def check_key(self, data: bytes | None, row: Row) -> None:
        """Raise `Unreadable` unless a record's key is that of its row, or need not be."""

    @property
    def has_own_key(self) -> bool:
        """Whether the key columns of a value count whatever the record's key is."""


class UpsertFormat:
    """Records that are rows."""

    def row_schema(self, schema: Mapping[str, object]) -> Mapping[str, object] | None:
        """The schema of the row in the schema of a value."""
        return schema

    def tombstone(self, rows: Rows, key: bytes | None) -> Decoded:
        """The row of the key is gone."""
        if rows.has_own_key:
            raise Unreadable("it is a tombstone, and with key_mismatch=value its key does not say which row to delete")
        try:
            found = rows.key(key)
            if found is None:
                raise Unreadable("it has neither key nor value")
            return Decoded((Delete(rows.table.table.full_name, whole_key(rows, found)),))
        except Unreadable as error:
            raise Unreadable(f"a tombstone that names no row: {error.reason}", is_mismatch=key is not None) from error

    def record(self, rows: Rows, key: bytes | None, value: bytes, payload: object) -> Decoded:
        """The row of the key as it is now."""
        if payload is None:
            return self.tombstone(rows, key)
        if not isinstance(payload, dict):
            raise Unreadable(f"its value is {type(payload).__name__}, not an object of columns")
        names = rows.table.table.key
        if not all(map(payload.__contains__, names)):
            found = rows.key(key)
            if found is None:
                raise Unreadable(f"neither key nor value has {', '.join(names)}")
            payload = {**whole_key(rows, found, read=False), **payload}
        row = rows.row(payload)
        rows.check_key(key, row)
        return Decoded((Insert(rows.table.table.full_name, row),))


def whole_key(rows: Rows, found: Payload, *, read: bool = True) -> Payload:
    """The key columns alone; all of them must be there."""
    names = rows.table.table.key
    missing = [name for name in names if found.get(name) is None]
    if missing:
        raise Unreadable(f"its key lacks {', '.join(missing)}")
    columns = {name: found[name] for name in names}
    return rows.row(columns) if read else columns
