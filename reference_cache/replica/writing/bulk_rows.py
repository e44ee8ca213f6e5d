"""Rows of an initial sync, many at a time: no Python code runs per row, only per batch and per JSON column.

Usual rows name all columns of their table in its order, so the values of a whole batch, one after the other, are the
parameters of statements that insert several rows each. Whatever is not usual is left to `table_rows`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain

from protocol.messages import JsonMode
from protocol.specs import JsonObject
from reference_cache.replica.catalog import VERSION_COLUMN, StoredTable
from reference_cache.replica.writing.table_rows import dump, text
from service_kit.sqlite import quoted

ROWS_PER_STATEMENT = 10
"""More make the statement longer than what they save."""

_TEXTS = {str, type(None)}


class BulkRows:
    """How many rows are appended to a table without indexes, all with one version."""

    def __init__(self, table: StoredTable, json_mode: JsonMode, version: str) -> None:
        self._names = list(table.columns)
        self._is_text = json_mode == "s"
        kinds = [spec.value_kind for spec in table.columns.values()]
        self._json = [place for place, kind in enumerate(kinds) if kind in ("json", "array")]
        columns = ", ".join(map(quoted, (*self._names, VERSION_COLUMN)))
        row = f"({'?, ' * len(self._names)}'{version}')"
        self._one = f"INSERT INTO {quoted(table.name)} ({columns}) VALUES {row}"
        self._several = f"INSERT INTO {quoted(table.name)} ({columns}) VALUES {', '.join([row] * ROWS_PER_STATEMENT)}"

    def values(self, rows: Sequence[JsonObject]) -> list[object] | None:
        """The values of all rows, one after the other; None if the rows are not all usual."""
        if list(chain.from_iterable(rows)) != self._names * len(rows):
            return None
        values: list[object] = list(chain.from_iterable(map(dict.values, rows)))
        width = len(self._names)
        for place in self._json:
            column = values[place::width]
            if not self._is_text:
                values[place::width] = map(dump, column)
            elif not set(map(type, column)) <= _TEXTS:
                values[place::width] = map(text, column)
        return values

    def append(self, connection: sqlite3.Connection, values: list[object]) -> None:
        """Insert what `values` gave."""
        width = len(self._names)
        step = width * ROWS_PER_STATEMENT
        whole = len(values) - len(values) % step
        connection.executemany(self._several, (values[at : at + step] for at in range(0, whole, step)))
        connection.executemany(self._one, (values[at : at + width] for at in range(whole, len(values), width)))
