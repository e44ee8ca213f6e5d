"""What a mutator works with: rows by key, queries, and four ways of writing, on a draft of the local tables.

A mutator is a function `mutator(tx, args)`. It runs once when it is called and again whenever the server's rows have
moved underneath it, so it must do nothing but use `tx`. What writes may be awaited and never waits. Writing follows the
official client: an insert of a row that is there and an update of one that is not do nothing, because the server may
have been faster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, TypeAlias

from reference_cache.client.errors import ClientError
from reference_cache.client.local.draft import Draft, Place
from reference_cache.zql.ivm.view import Result
from reference_cache.zql.nearest import unknown
from reference_cache.zql.query.builder import QueryBuilder
from reference_cache.zql.schema import Row, Schema, TableSchema
from reference_cache.zql.values import kind


class Written:
    """The end of a write, for mutators that await it as they would on a server."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


WRITTEN = Written()
Reason: TypeAlias = Literal["optimistic", "rebase"]
PlaceOf: TypeAlias = Callable[[str, Mapping[str, Any]], Place]


class Transaction:
    """One run of a mutator. Invariant: `undo` takes the draft back to where the run began."""

    def __init__(self, schema: Schema, draft: Draft, place_of: PlaceOf, reason: Reason) -> None:
        self.reason = reason
        self._schema = schema
        self._draft = draft
        self._place_of = place_of
        self._before: dict[Place, Row | None] = {}

    @property
    def written(self) -> set[Place]:
        """The places this run wrote."""
        return set(self._before)

    def get(self, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row with this primary key, by column name."""
        row = self._draft.get(self._place(table, key))
        return None if row is None else self._schema.tables[table].named(row)

    def run(self, query: QueryBuilder) -> Result:
        """The result of a query, with everything written so far."""
        return self._draft.run(query)

    def insert(self, table: str, row: Mapping[str, Any]) -> Written:
        """Add a row; columns left out are null. Nothing happens if it is there."""
        place = self._place(table, row)
        if self._draft.get(place) is None:
            self._write(place, self._schema.tables[table].row(row))
        return WRITTEN

    def upsert(self, table: str, row: Mapping[str, Any]) -> Written:
        """Add a row, or change the columns given of the one that is there."""
        place = self._place(table, row)
        self._write(place, self._merged(table, self._draft.get(place), row))
        return WRITTEN

    def update(self, table: str, row: Mapping[str, Any]) -> Written:
        """Change the columns given of the row with this key. Nothing happens if it is not there."""
        place = self._place(table, row)
        old = self._draft.get(place)
        if old is not None:
            self._write(place, self._merged(table, old, row))
        return WRITTEN

    def delete(self, table: str, key: Mapping[str, Any]) -> Written:
        """Remove the row with this key, if it is there."""
        place = self._place(table, key)
        if self._draft.get(place) is not None:
            self._write(place, None)
        return WRITTEN

    def undo(self) -> None:
        """Take back everything this run wrote."""
        for place, row in self._before.items():
            self._draft.set(place, row)
        self._before.clear()

    def _write(self, place: Place, row: Row | None) -> None:
        self._before.setdefault(place, self._draft.get(place))
        self._draft.set(place, row)

    def _merged(self, table: str, old: Row | None, row: Mapping[str, Any]) -> Row:
        known = self._schema.tables[table]
        return known.row({**({} if old is None else known.named(old)), **row})

    def _place(self, table: str, row: Mapping[str, Any]) -> Place:
        if table not in self._schema.tables:
            raise ClientError("bad-write", unknown("table", table, self._schema.tables), table)
        known = self._schema.tables[table]
        for column, value in row.items():
            _check(known, column, value)
        missing = [column for column in known.primary_key if row.get(column) is None]
        if missing:
            raise ClientError("bad-write", f"the key needs {', '.join(missing)}", table, "give every key column")
        return self._place_of(table, row)


def _check(table: TableSchema, column: str, value: Any) -> None:
    if column not in table.columns:
        raise ClientError("bad-write", unknown("column", column, table.columns), table.name)
    wanted = table.columns[column].type
    if value is not None and wanted not in ("json", kind(value)):
        raise ClientError("bad-write", f"column {column!r} holds {wanted}, not {value!r}", table.name)
