"""A row's identity in three shapes: the engine's key, the JSON object clients know it by, and its stored row version.

The JSON object is what a `del` carries as `id`, so records keep it as text and pokes splice it in.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import orjson

from reference_cache.zql.engine.row_set import RowId
from reference_cache.zql.ordering import join_key
from reference_cache.zql.schema import Row, Schema, TableSchema


class TableKeys:
    """One table's keys. Invariant: `row_id(text(row))` is the engine's id of the row. `key` gives the engine's key of a
    row, and None for a null in it. The last column of a row is its version."""

    __slots__ = ("_get", "_names", "_put", "_table", "key", "names")

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        self._names = table.primary_key
        self.key = join_key(table.primary_key, table)
        self._get: Callable[[Row], Any] = itemgetter(*table.positions(table.primary_key))
        name = orjson.dumps(table.name).replace(b"%", b"%%")
        self._put = b'{"op":"put","tableName":%b,"value":%%b}' % name
        self.names = tuple(table.columns)[:-1]

    def text(self, row: Row) -> str:
        """The row's key as clients know it."""
        if len(self._names) == 1:
            return orjson.dumps({self._names[0]: self._get(row)}).decode()
        return orjson.dumps(dict(zip(self._names, self._get(row), strict=True))).decode()

    def row_id(self, text: str) -> RowId:
        """The engine's id of the row with this key."""
        return self._table.name, self.key(self._table.row(orjson.loads(text)))

    def put(self, row: Row) -> bytes:
        """The `put` of a row patch, with every column but the version."""
        return self._put % orjson.dumps(dict(zip(self.names, row, strict=False)))


class RowKeys(dict[str, TableKeys]):
    """The keys of a schema's tables by name, made on first use: a dictionary, because every row that moves asks it."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self._schema = schema

    def __missing__(self, table: str) -> TableKeys:
        keys = self[table] = TableKeys(self._schema.tables[table])
        return keys

    def row_id(self, table: str, text: str) -> RowId:
        """The engine's id of a recorded row; of a table that is no longer there, an id that no row has."""
        return self[table].row_id(text) if table in self._schema.tables else (table, text)


def delete(table: str, text: str) -> bytes:
    """The `del` of a row patch."""
    return b'{"op":"del","tableName":%b,"id":%b}' % (orjson.dumps(table), text.encode())
