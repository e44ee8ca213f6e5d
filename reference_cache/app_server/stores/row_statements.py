"""Builds SQL statements for single rows from the schema's client names. Pure.

The four operations are those of the official client's mutators, so one mutator works with every SQL store: insert,
upsert, update, delete by key. Names and keys are checked against the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from reference_cache.app_server.stores.dialect import Dialect
from reference_cache.zql.query.names import NameMap
from reference_cache.zql.schema import Schema, TableSchema

Statement: TypeAlias = tuple[str, list[Any]]


class RowError(ValueError):
    """A row without its whole key."""


class RowStatements:
    """Makes statements for the tables of a schema, in one dialect."""

    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        self._schema = schema
        self._names = NameMap.to_server(schema)
        self.dialect = dialect

    def insert(self, table: str, row: Mapping[str, Any]) -> Statement:
        """Add a row; the store raises if the key exists."""
        columns, values = self._columns(table, row), self._values(table, row)
        marks = self.dialect.marks(len(columns))
        return f"INSERT INTO {self._table(table)} ({', '.join(columns)}) VALUES ({marks})", values

    def upsert(self, table: str, row: Mapping[str, Any]) -> Statement:
        """Add a row, or set these columns of the existing one."""
        statement, values = self.insert(table, row)
        key = self._key(table, row)
        rest = [column for column in row if column not in key]
        names = dict(zip(row, self._columns(table, row), strict=True))
        clause = self.dialect.on_conflict([names[column] for column in key], [names[column] for column in rest])
        return f"{statement} {clause}", values

    def update(self, table: str, row: Mapping[str, Any]) -> Statement | None:
        """Set these columns of the row with this key; None if the row has key columns only."""
        key = self._key(table, row)
        changed = {column: value for column, value in row.items() if column not in key}
        if not changed:
            self._columns(table, row)
            return None
        sets = ", ".join(f"{column} = {self.dialect.mark}" for column in self._columns(table, changed))
        where, values = self._where(table, row)
        return f"UPDATE {self._table(table)} SET {sets} WHERE {where}", [*self._values(table, changed), *values]

    def delete(self, table: str, key: Mapping[str, Any]) -> Statement:
        """Delete the row with this key, if it exists."""
        where, values = self._where(table, key)
        return f"DELETE FROM {self._table(table)} WHERE {where}", values

    def _where(self, table: str, row: Mapping[str, Any]) -> Statement:
        key = {column: row[column] for column in self._key(table, row)}
        tests = [f"{column} = {self.dialect.mark}" for column in self._columns(table, key)]
        return " AND ".join(tests), self._values(table, key)

    def _key(self, table: str, row: Mapping[str, Any]) -> Sequence[str]:
        key = self._declared(table).primary_key
        missing = [column for column in key if column not in row]
        if missing:
            raise RowError(f"table {table!r}: the row lacks its key, {', '.join(missing)}")
        return key

    def _declared(self, table: str) -> TableSchema:
        self._names.table(table)
        return self._schema.tables[table]

    def _table(self, table: str) -> str:
        return self.dialect.table(self._names.table(table))

    def _columns(self, table: str, row: Mapping[str, Any]) -> list[str]:
        return [self.dialect.quote(self._names.column(table, column)) for column in row]

    def _values(self, table: str, row: Mapping[str, Any]) -> list[Any]:
        columns = self._declared(table).columns
        return [
            self.dialect.json(value) if columns[column].type == "json" and value is not None else value
            for column, value in row.items()
        ]
