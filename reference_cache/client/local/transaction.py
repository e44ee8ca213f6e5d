"""The transaction that a mutator gets: reads by key, queries and writes, on a draft of the local tables.

A mutator is a function `mutator(tx, args)`. It runs once when it is called, and again after every poke until it is
confirmed, so it must have no effect except through `tx`. Writes can be awaited, but never suspend. As in the official
client, inserting a row that exists and updating one that does not do nothing, because the server's rows may already
contain the mutation's effect.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, TypeAlias

from reference_cache.client.errors import ClientError
from reference_cache.client.local.draft import Draft, RowId
from reference_cache.zql.ivm.view import Result
from reference_cache.zql.nearest import unknown
from reference_cache.zql.query.builder import QueryBuilder
from reference_cache.zql.schema import Row, Schema, TableSchema
from reference_cache.zql.values import kind


class Written:
    """An awaitable that is always done, for mutators that await writes as they must on a server."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


WRITTEN = Written()
Reason: TypeAlias = Literal["optimistic", "rebase"]
RowIdOf: TypeAlias = Callable[[str, Mapping[str, Any]], RowId]


class Transaction:
    """One run of a mutator. Invariant: `undo` restores the draft as it was before the run."""

    def __init__(self, schema: Schema, draft: Draft, row_id_of: RowIdOf, reason: Reason) -> None:
        self.reason = reason
        self._schema = schema
        self._draft = draft
        self._row_id_of = row_id_of
        # The rows this run has written, as they were before it; written by `_write`, emptied by `undo`.
        self._before: dict[RowId, Row | None] = {}

    @property
    def written(self) -> set[RowId]:
        """The ids of the rows this run wrote."""
        return set(self._before)

    def get(self, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row with this primary key as a dict by column name, or None."""
        row = self._draft.get(self._row_id(table, key))
        return None if row is None else self._schema.tables[table].named(row)

    def run(self, query: QueryBuilder) -> Result:
        """The result of a query on the local rows, including this run's writes."""
        return self._draft.run(query)

    def insert(self, table: str, row: Mapping[str, Any]) -> Written:
        """Add a row; omitted columns are null. Does nothing if the row exists."""
        row_id = self._row_id(table, row)
        if self._draft.get(row_id) is None:
            self._write(row_id, self._schema.tables[table].row(row))
        return WRITTEN

    def upsert(self, table: str, row: Mapping[str, Any]) -> Written:
        """Add a row, or change these columns of the existing one."""
        row_id = self._row_id(table, row)
        self._write(row_id, self._merged(table, self._draft.get(row_id), row))
        return WRITTEN

    def update(self, table: str, row: Mapping[str, Any]) -> Written:
        """Change these columns of the row with this key. Does nothing if there is no such row."""
        row_id = self._row_id(table, row)
        old = self._draft.get(row_id)
        if old is not None:
            self._write(row_id, self._merged(table, old, row))
        return WRITTEN

    def delete(self, table: str, key: Mapping[str, Any]) -> Written:
        """Delete the row with this key, if it exists."""
        row_id = self._row_id(table, key)
        if self._draft.get(row_id) is not None:
            self._write(row_id, None)
        return WRITTEN

    def undo(self) -> None:
        """Revert everything this run wrote."""
        for row_id, row in self._before.items():
            self._draft.set(row_id, row)
        self._before.clear()

    def _write(self, row_id: RowId, row: Row | None) -> None:
        self._before.setdefault(row_id, self._draft.get(row_id))
        self._draft.set(row_id, row)

    def _merged(self, table: str, old: Row | None, row: Mapping[str, Any]) -> Row:
        schema = self._schema.tables[table]
        return schema.row({**({} if old is None else schema.named(old)), **row})

    def _row_id(self, table: str, row: Mapping[str, Any]) -> RowId:
        if table not in self._schema.tables:
            raise ClientError("bad-write", unknown("table", table, self._schema.tables), table)
        schema = self._schema.tables[table]
        for column, value in row.items():
            _check(schema, column, value)
        missing = [column for column in schema.primary_key if row.get(column) is None]
        if missing:
            raise ClientError("bad-write", f"the key needs {', '.join(missing)}", table, "give every key column")
        return self._row_id_of(table, row)


def _check(table: TableSchema, column: str, value: Any) -> None:
    if column not in table.columns:
        raise ClientError("bad-write", unknown("column", column, table.columns), table.name)
    expected = table.columns[column].type
    if value is not None and expected not in ("json", kind(value)):
        raise ClientError("bad-write", f"column {column!r} holds {expected}, not {value!r}", table.name)
