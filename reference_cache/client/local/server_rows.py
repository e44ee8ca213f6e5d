"""Rows as the server sends them, under its names, made into rows of the client's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.sync.downstream import UpdateRow
from reference_cache.zql.schema import Row, Schema


class ServerRows:
    """Translates for one schema. Columns the schema does not know are dropped; those the server lacks are null."""

    def __init__(self, schema: Schema) -> None:
        self._tables = {table.server_name or name: name for name, table in schema.tables.items()}
        self._columns = {
            name: tuple(table.server_columns.get(column, column) for column in table.columns)
            for name, table in schema.tables.items()
        }

    def table(self, server_name: str) -> str | None:
        """The schema's name of a server's table; None for one it does not know."""
        return self._tables.get(server_name)

    def row(self, table: str, values: Mapping[str, Any]) -> Row:
        """The row of these values, or as much of it as they give."""
        return tuple([values.get(column) for column in self._columns[table]])

    def updated(self, table: str, old: Row | None, patch: UpdateRow) -> Row:
        """The row after some of its columns changed; those outside `constrain` are no longer known."""
        columns = self._columns[table]
        values: dict[str, Any] = {} if old is None else dict(zip(columns, old, strict=True))
        if patch.constrain is not None:
            values = {column: value for column, value in values.items() if column in patch.constrain}
        return self.row(table, {**values, **(patch.merge or {}), **patch.id})
