"""Backfill: columns whose values come after the column itself, in messages of their own.

Until its backfill is complete a column (or a whole table) is not shown to queries. Meanwhile the live stream changes
the same rows, and its values are newer than those of a backfill taken at an earlier watermark. So changes to a table
with unfilled columns leave a note per row: which of these columns got a value, or that the row was deleted, and when.

Contract: a value of the stream at version v is never overwritten by a backfill with a watermark below v, and a row
deleted at v, alone or with its whole table, is not brought back by one.
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
"""In place of a key, which is a JSON array: the note on all rows at once."""


@dataclass(slots=True)
class Note:
    """What the stream did to a row since: the version of each unfilled column's value, or of the row's deletion."""

    columns: dict[str, str] = field(default_factory=dict)
    deleted: str = ""

    def fillable(self, columns: Iterable[str], watermark: str) -> list[str]:
        """The columns that a backfill of this watermark may set; none if the row is gone."""
        if self.deleted > watermark:
            return []
        return [column for column in columns if self.columns.get(column, "") <= watermark]


class FreshRows:
    """The notes on the rows of one table."""

    def __init__(self, connection: sqlite3.Connection, rows: TableRows) -> None:
        self._connection = connection
        self._rows = rows
        self._unfilled = rows.table.unfilled

    def note_values(self, row: JsonObject, columns: KeyColumns, version: str) -> None:
        """The stream gave these columns values."""
        if columns == ():
            return
        key = self._key(row, columns)
        note = self._note(key)
        note.deleted = ""
        note.columns.update((name, version) for name in row if name in self._unfilled)
        self._save(key, note)

    def note_deletion(self, row: JsonObject, columns: KeyColumns, version: str) -> None:
        """The stream deleted the row."""
        self._save(self._key(row, columns), Note(deleted=version))

    def note_emptying(self, version: str) -> None:
        """The stream emptied the table; what it said of single rows before is history."""
        self.forget()
        self._save(_WHOLE_TABLE, Note(deleted=version))

    def was_emptied_after(self, watermark: str) -> bool:
        """Whether all that a backfill of this watermark has seen is gone since."""
        return self._note(_WHOLE_TABLE).deleted > watermark

    def fillable(self, row: JsonObject, change: Backfill) -> list[str]:
        """The columns of a backfilled row that may be set."""
        key = change.relation.row_key.columns
        return self._note(self._key(row, key)).fillable(change.columns, change.watermark)

    def forget(self) -> None:
        """The backfill of the table is complete."""
        self._connection.execute(f'DELETE FROM {FRESH} WHERE "table" = ?', (self._rows.name,))

    def _key(self, row: JsonObject, columns: KeyColumns) -> str:
        return orjson.dumps(self._rows.key_values(row, columns)).decode()

    def _note(self, key: str) -> Note:
        sql = f'SELECT note FROM {FRESH} WHERE "table" = ? AND key = ?'
        found = self._connection.execute(sql, (self._rows.name, key)).fetchone()
        return Note() if found is None else Note(**orjson.loads(found[0]))

    def _save(self, key: str, note: Note) -> None:
        text = orjson.dumps({"columns": note.columns, "deleted": note.deleted}).decode()
        self._connection.execute(f"INSERT OR REPLACE INTO {FRESH} VALUES (?, ?, ?)", (self._rows.name, key, text))


def backfilled_rows(change: Backfill) -> Iterable[JsonObject]:
    """The rows of a message, by column name: the key first, then the columns."""
    names: Sequence[str] = (*change.relation.row_key.columns, *change.columns)
    return (dict(zip(names, values, strict=True)) for values in change.row_values)
