"""The `clientSchema` document: server names, column types and primary keys, each sorted."""

from __future__ import annotations

from typing import Any

from reference_cache.zql.schema import Schema, TableSchema


def schema_document(schema: Schema) -> dict[str, Any]:
    """The value of `clientSchema` in `initConnection`."""
    tables = {table.server_name or name: _table(table) for name, table in schema.tables.items()}
    return {"tables": dict(sorted(tables.items()))}


def _table(table: TableSchema) -> dict[str, Any]:
    columns = {table.server_columns.get(name, name): {"type": column.type} for name, column in table.columns.items()}
    return {
        "columns": dict(sorted(columns.items())),
        "primaryKey": sorted(table.server_columns.get(name, name) for name in table.primary_key),
    }
