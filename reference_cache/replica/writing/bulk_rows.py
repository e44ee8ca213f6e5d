"""Inserts rows of an initial sync in bulk: Python code runs per batch and per JSON column, not per row.

Usual rows have all columns of their table in its order, so the concatenated values of a batch are the parameters of
statements that insert several rows each. Batches with other rows are left to `table_rows`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain

from protocol.messages import JsonMode
from protocol.specs import VERSION_COLUMN, JsonObject
from reference_cache.replica.catalog import StoredTable
from reference_cache.replica.writing.table_rows import dump, text
from service_kit.sqlite import quoted

ROWS_PER_STATEMENT = 10
"""With more rows per statement, the longer statement costs more than it saves."""

_TEXTS = {str, type(None)}


class BulkRows:
    """Appends rows of one version to a table without indexes."""

    def __init__(self, table: StoredTable, json_mode: JsonMode, version: str) -> None:
        self._names = list(table.columns)
        self._is_text = json_mode == "s"
        kinds = [spec.value_kind for spec in table.columns.values()]
        self._json = [index for index, kind in enumerate(kinds) if kind in ("json", "array")]
        columns = ", ".join(map(quoted, (*self._names, VERSION_COLUMN)))
        row = f"({'?, ' * len(self._names)}'{version}')"
        self._one = f"INSERT INTO {quoted(table.name)} ({columns}) VALUES {row}"
        self._several = f"INSERT INTO {quoted(table.name)} ({columns}) VALUES {', '.join([row] * ROWS_PER_STATEMENT)}"

    def values(self, rows: Sequence[JsonObject]) -> list[object] | None:
        """The values of all rows, concatenated; None if a row does not have all columns in order."""
        if list(chain.from_iterable(rows)) != self._names * len(rows):
            return None
        values: list[object] = list(chain.from_iterable(map(dict.values, rows)))
        width = len(self._names)
        for index in self._json:
            column = values[index::width]
            if not self._is_text:
                values[index::width] = map(dump, column)
            elif not set(map(type, column)) <= _TEXTS:
                values[index::width] = map(text, column)
        return values

    def append(self, connection: sqlite3.Connection, values: list[object]) -> None:
        """Insert the result of `values`."""
        width = len(self._names)
        step = width * ROWS_PER_STATEMENT
        whole = len(values) - len(values) % step
        connection.executemany(self._several, (values[at : at + step] for at in range(0, whole, step)))
        connection.executemany(self._one, (values[at : at + width] for at in range(whole, len(values), width)))
