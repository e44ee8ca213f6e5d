"""Backfill: columns whose values arrive after the column itself, in messages of their own.

Until its backfill is complete, a column (or a whole table) is invisible to queries. Meanwhile the live stream changes
the same rows, and its values are newer than those of a backfill taken at an earlier watermark. So for each changed row
of a table with unfilled columns, a record in the replica says which of these columns got a value at which version, or
at which version the row was deleted.

Contract: a backfill with a watermark below v never overwrites a value that the stream brought at v, and never restores
a row that was deleted at v, alone or with its whole table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from protocol.changes import Backfill
from protocol.specs import JsonObject
from reference_cache.replica.stored_catalog import FRESH
from reference_cache.replica.writing.table_rows import KeyColumns, TableRows

_WHOLE_TABLE = ""
"""Key of the record about all rows; the others are JSON arrays."""


@dataclass(slots=True)
class RowRecord:
    """What the stream did to a row since its backfill began."""

    # Unfilled column -> version at which the stream set it.
    columns: dict[str, str] = field(default_factory=dict)
    # Version at which the row was deleted; "" if it was not, or exists again.
    deleted: str = ""

    def fillable(self, columns: Iterable[str], watermark: str) -> list[str]:
        """The columns that a backfill of this watermark may set; none if the row was deleted after it."""
        if self.deleted > watermark:
            return []
        return [column for column in columns if self.columns.get(column, "") <= watermark]


class StreamedRows:
    """The records of one table, in the replica's transaction."""

    def __init__(self, connection: sqlite3.Connection, rows: TableRows) -> None:
        self._connection = connection
        self._rows = rows
        self._unfilled = rows.table.unfilled

    def record_values(self, row: JsonObject, columns: KeyColumns, version: str) -> None:
        """Record that the stream wrote these columns."""
        if columns == ():
            return
        key = self._key(row, columns)
        record = self._record(key)
        record.deleted = ""
        record.columns.update((name, version) for name in row if name in self._unfilled)
        self._save(key, record)

    def record_deletion(self, row: JsonObject, columns: KeyColumns, version: str) -> None:
        """Record that the stream deleted the row."""
        self._save(self._key(row, columns), RowRecord(deleted=version))

    def record_truncate(self, version: str) -> None:
        """Record that the stream truncated the table; replaces the records of single rows."""
        self.forget()
        self._save(_WHOLE_TABLE, RowRecord(deleted=version))

    def was_truncated_after(self, watermark: str) -> bool:
        """Whether the table was truncated after a backfill's watermark."""
        return self._record(_WHOLE_TABLE).deleted > watermark

    def fillable(self, row: JsonObject, change: Backfill) -> list[str]:
        """The columns of a backfilled row that may be written."""
        key = change.relation.row_key.columns
        return self._record(self._key(row, key)).fillable(change.columns, change.watermark)

    def forget(self) -> None:
        """Delete all records of the table, when its backfill is complete."""
        self._connection.execute(f'DELETE FROM {FRESH} WHERE "table" = ?', (self._rows.name,))

    def _key(self, row: JsonObject, columns: KeyColumns) -> str:
        return orjson.dumps(self._rows.key_values(row, columns)).decode()

    def _record(self, key: str) -> RowRecord:
        sql = f'SELECT note FROM {FRESH} WHERE "table" = ? AND key = ?'
        row = self._connection.execute(sql, (self._rows.name, key)).fetchone()
        return RowRecord() if row is None else RowRecord(**orjson.loads(row[0]))

    def _save(self, key: str, record: RowRecord) -> None:
        text = orjson.dumps({"columns": record.columns, "deleted": record.deleted}).decode()
        self._connection.execute(f"INSERT OR REPLACE INTO {FRESH} VALUES (?, ?, ?)", (self._rows.name, key, text))


def backfilled_rows(change: Backfill) -> Iterable[JsonObject]:
    """The rows of a message as dicts by column name: the key first, then the backfilled columns."""
    names: Sequence[str] = (*change.relation.row_key.columns, *change.columns)
    return (dict(zip(names, values, strict=True)) for values in change.row_values)
