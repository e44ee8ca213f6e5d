"""Rows in a SQLite table that this store writes itself, in batches.

A change is first laid over the table in memory, as in `tables.followed`, and handed to SQLite later: when enough have
gathered, before a whole table is scanned, and on `flush`. Writing row by row would cost more than all the rest of a
push. The caller owns the connection: it opens and commits transactions, and calls `flush` before the commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from protocol.sync.ast import Condition, Ordering
from reference_cache.zql.ivm.change import Add, Edit, SourceChange
from reference_cache.zql.ivm.operator import Key, Request
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.ivm.store import SourceError
from reference_cache.zql.schema import Row, TableSchema
from reference_cache.zql.tables.followed import FollowedReader, FollowedTable
from reference_cache.zql.tables.sqlite_codec import json_text
from service_kit.sqlite import quoted

KEPT_BACK = 512
"""Changed rows that may wait in memory."""


def encoder(table: TableSchema) -> Callable[[Row], Row] | None:
    """From the engine's row to what is stored; None if they are the same. Booleans arrive as 0/1 by themselves."""
    is_json = [column.type == "json" for column in table.columns.values()]
    if not any(is_json):
        return None

    def encode(row: Row) -> Row:
        pairs = zip(row, is_json, strict=True)
        return tuple(json_text(value) if json and value is not None else value for value, json in pairs)

    return encode


class WrittenTable(FollowedTable):
    """A `RowStore` that checks and writes what it is told.

    Invariant: as `FollowedTable`; `_stored` has what the database holds (None: no row) for exactly the touched keys.
    """

    def __init__(self, connection: sqlite3.Connection, table: TableSchema) -> None:
        super().__init__(connection, table)
        self._connection = connection
        self._stored: dict[Key, Row | None] = {}
        self._encode = encoder(table)
        name = quoted(table.name)
        self._where_key = " AND ".join(f"{quoted(column)} = ?" for column in table.primary_key)
        self._delete_sql = f"DELETE FROM {name} WHERE {self._where_key}"
        self._exists_sql = f"SELECT 1 FROM {name} WHERE {self._where_key}"
        marks = ", ".join("?" * len(table.columns))
        self._insert_sql = f"INSERT INTO {name} ({self.below.columns_sql}) VALUES ({marks})"
        self._update_sql: dict[tuple[int, ...], str] = {}

    def reader(self, ordering: Ordering | None, condition: Condition | None) -> WrittenReader:
        return WrittenReader(self, ordering, condition)

    def apply(self, change: SourceChange) -> None:
        row = change.node.row
        key = self.key(row)
        if key is None:
            raise SourceError(f"row {row!r} of table {self.table.name!r} has a null in its primary key")
        if isinstance(change, Edit):
            self._note_edit(key, change.old_node.row)
        elif isinstance(change, Add):
            self._must_be_absent(key)
            self._stored.setdefault(key, None)
        else:
            self._must_be_present(key)
            self._stored.setdefault(key, row)
        super().apply(change)
        if len(self.touched) > KEPT_BACK:
            self.flush()

    def _note_edit(self, key: Key, old_row: Row) -> None:
        old_key = self.key(old_row)
        self._must_be_present(old_key)
        if old_key != key:
            self._must_be_absent(key)
            self._stored.setdefault(key, None)
        self._stored.setdefault(old_key, old_row)

    def _has(self, key: Key) -> bool:
        if key in self.touched:
            return self.touched[key] is not None
        parameters = self.below.key_parameters(key)
        return parameters is not None and self._connection.execute(self._exists_sql, parameters).fetchone() is not None

    def _must_be_present(self, key: Key) -> None:
        if not self._has(key):
            raise SourceError(f"table {self.table.name!r} has no row with key {key!r}; it cannot be changed")

    def _must_be_absent(self, key: Key) -> None:
        if self._has(key):
            raise SourceError(f"table {self.table.name!r} already has a row with key {key!r}; it cannot be added")

    def flush(self) -> None:
        """Hand the waiting changes to SQLite."""
        if not self.touched:
            return
        try:
            self._write()
        except sqlite3.IntegrityError:
            # Rows may have exchanged values of another unique key; with all of them out of the way they fit.
            self._delete(list(self.touched))
            self._insert([row for row in self.touched.values() if row is not None])
        self._stored.clear()
        self.advance()

    def _write(self) -> None:
        removed: list[Key] = []
        added: list[Row] = []
        edited: dict[tuple[int, ...], list[tuple[Row, Key]]] = {}
        for key, row in self.touched.items():
            old = self._stored[key]
            if row is None:
                removed += [key] if old is not None else []
            elif old is None:
                added.append(row)
            else:
                edited.setdefault(_changed_places(row, old), []).append((row, key))
        self._delete(removed)
        for places, rows in edited.items():
            self._update(places, rows)
        self._insert(added)

    def _delete(self, keys: list[Key]) -> None:
        if keys:
            self._connection.executemany(self._delete_sql, [self._parameters(key) for key in keys])

    def _insert(self, rows: list[Row]) -> None:
        if rows:
            encode = self._encode
            self._connection.executemany(self._insert_sql, rows if encode is None else [encode(row) for row in rows])

    def _update(self, places: tuple[int, ...], rows: list[tuple[Row, Key]]) -> None:
        """Set only the columns that changed: SQLite touches every index whose columns are set, changed or not."""
        if not places:
            return
        text = self._update_sql.get(places)
        if text is None:
            columns = list(self.table.columns)
            assigned = ", ".join(f"{quoted(columns[place])} = ?" for place in places)
            text = f"UPDATE {quoted(self.table.name)} SET {assigned} WHERE {self._where_key}"
            self._update_sql[places] = text
        encode = self._encode or tuple
        pairs = [(encode(row), self._parameters(key)) for row, key in rows]
        self._connection.executemany(text, [(*(row[place] for place in places), *key) for row, key in pairs])

    def _parameters(self, key: Key) -> tuple[Any, ...]:
        parameters = self.below.key_parameters(key)
        assert parameters is not None
        return parameters


def _changed_places(row: Row, old_row: Row) -> tuple[int, ...]:
    return tuple(place for place, value in enumerate(row) if value != old_row[place])


class WrittenReader(FollowedReader):
    """Reads the whole table from SQLite alone, where merging row by row would cost more than writing first."""

    def __init__(self, store: WrittenTable, ordering: Ordering | None, condition: Condition | None) -> None:
        super().__init__(store, ordering, condition)
        self._flush = store.flush

    def rows(self, request: Request) -> Iterator[Row]:
        if not request.columns and request.start is None:
            self._flush()
        return super().rows(request)


def sqlite_source(connection: sqlite3.Connection, table: TableSchema) -> Source:
    """A source whose rows live in a SQLite table and are written by it."""
    return Source(WrittenTable(connection, table))
