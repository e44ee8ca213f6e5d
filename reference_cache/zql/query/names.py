"""Translates queries between the client's and the server's names of tables and columns.

Mapping renames tables, the columns of comparisons, both sides of correlations, cursor keys and order columns.
Aliases stay: they name relationships in the client's result, not columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from protocol.sync.ast import Column, Condition, CorrelatedSubquery, Exists, Query, Simple, map_leaves
from reference_cache.zql.nearest import unknown
from reference_cache.zql.schema import Schema


class UnknownNameError(ValueError):
    """A table or column that has no name on the other side."""

    code = "unknown-name"


@dataclass(frozen=True, slots=True)
class TableNames:
    """The other side's name of a table and of each of its columns."""

    name: str
    columns: Mapping[str, str]


class NameMap:
    """A renaming of tables and columns in one direction; every known name has exactly one counterpart."""

    def __init__(self, tables: Mapping[str, TableNames]) -> None:
        self._tables = tables

    @classmethod
    def to_server(cls, schema: Schema) -> NameMap:
        """From the names a client schema uses to those of the server's tables."""
        return cls(
            {
                name: TableNames(table.server_name or name, {c: table.server_columns.get(c, c) for c in table.columns})
                for name, table in schema.tables.items()
            }
        )

    def table(self, name: str) -> str:
        """The other side's name of a table; raises `UnknownNameError`."""
        return self._names(name).name

    def column(self, table: str, name: str) -> str:
        """The other side's name of a column; `table` is the name before mapping. Raises `UnknownNameError`."""
        columns = self._names(table).columns
        if name not in columns:
            raise UnknownNameError(f"table {table!r}: {unknown('column', name, columns)}")
        return columns[name]

    def row(self, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of `table` under the other side's column names."""
        return {self.column(table, column): value for column, value in row.items()}

    def query(self, query: Query) -> Query:
        """The query under the other side's names."""
        start = query.start
        return replace(
            query,
            table=self.table(query.table),
            where=None if query.where is None else self._condition(query.where, query.table),
            related=tuple(self._related(related, query.table) for related in query.related),
            start=None if start is None else replace(start, row=self.row(query.table, start.row)),
            order_by=tuple((self.column(query.table, column), way) for column, way in query.order_by),
        )

    def _names(self, table: str) -> TableNames:
        if table not in self._tables:
            raise UnknownNameError(unknown("table", table, self._tables))
        return self._tables[table]

    def _condition(self, condition: Condition, table: str) -> Condition:
        def rename(leaf: Simple | Exists) -> Condition:
            if isinstance(leaf, Exists):
                return replace(leaf, related=self._related(leaf.related, table))
            if isinstance(leaf.left, Column):
                return replace(leaf, left=replace(leaf.left, name=self.column(table, leaf.left.name)))
            return leaf

        return map_leaves(condition, rename)

    def _related(self, related: CorrelatedSubquery, parent: str) -> CorrelatedSubquery:
        child, correlation = related.subquery.table, related.correlation
        renamed = replace(
            correlation,
            parent_field=tuple(self.column(parent, column) for column in correlation.parent_field),
            child_field=tuple(self.column(child, column) for column in correlation.child_field),
        )
        return replace(related, correlation=renamed, subquery=self.query(related.subquery))
