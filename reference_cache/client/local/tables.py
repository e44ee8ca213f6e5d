"""The client's tables: the server's rows with the unconfirmed mutations on top.

The engine's tables hold the rows that views show. For each row that an unconfirmed mutation has changed, the server's
version is kept in `_server`, so that the mutation can be undone. A rebase works in a draft: it restores the server's
rows, applies the poke's changes, and runs the unconfirmed mutations again. Only the difference between the tables and
the draft is pushed into the engine, so a poke that merely confirms a mutation causes no work in the views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reference_cache.client.local.draft import Draft, RowId
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.operator import Key
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.schema import Row, Schema
from reference_cache.zql.tables.memory import MemoryTable

Replay = Callable[[Draft], Iterable[RowId]]
"""Runs the unconfirmed mutations on a draft; returns the rows they wrote."""


class LocalTables:
    """Invariant: between calls the engine's tables are the server's rows with the unconfirmed mutations applied."""

    def __init__(self, schema: Schema, rows: Mapping[str, Iterable[Row]]) -> None:
        self._schema = schema
        self._tables = {name: MemoryTable(table, rows.get(name, ())) for name, table in schema.tables.items()}
        # The server's version of each row that an unconfirmed mutation has written, None if the server has no such
        # row; written by `adopt` and `rebase`.
        self._server: dict[RowId, Row | None] = {}
        self.engine = Engine(schema, lambda table: Source(self._tables[table.name]))

    def row_id(self, table: str, values: Mapping[str, Any]) -> RowId:
        """The id of the row with these key columns."""
        return table, self.key(table, self._schema.tables[table].row(values))

    def key(self, table: str, row: Row) -> Key:
        rows = self._tables[table]
        key: Key = rows.keys[rows.table.primary_key](row)
        return key

    def draft(self) -> Draft:
        """A draft without changes."""
        return Draft(self._schema, self._tables)

    def server_row(self, row_id: RowId) -> Row | None:
        """The server's version of a row."""
        table, key = row_id
        return self._server[row_id] if row_id in self._server else self._tables[table].get(key)

    def server_row_ids(self) -> list[RowId]:
        """The ids of all rows of the server."""
        shown = {(name, self.key(name, row)) for name, table in self._tables.items() for row in table.rows()}
        return [row_id for row_id in shown | self._server.keys() if self.server_row(row_id) is not None]

    def adopt(self, draft: Draft, written: Iterable[RowId]) -> None:
        """Make a draft of `draft()` the current rows; a new mutation wrote the rows `written`."""
        for row_id in written:
            self._server.setdefault(row_id, self.server_row(row_id))
        self._show(draft)

    def rebase(self, changes: Mapping[RowId, Row | None], replay: Replay) -> None:
        """Apply changes of the server's rows, and run the unconfirmed mutations again on top of them."""
        draft = self.draft()
        for row_id, row in {**self._server, **changes}.items():
            draft.set(row_id, row)
        server = dict(draft.changed)
        self._server = {
            row_id: server[row_id] if row_id in server else self._tables[row_id[0]].get(row_id[1])
            for row_id in replay(draft)
        }
        self._show(draft)

    def _show(self, draft: Draft) -> None:
        """Push the differences into the engine, removals first: a `one()` relationship has room for one row only."""
        changes = list(draft.differences())
        changes.sort(key=lambda change: (change[2] is not None, change[1] is None))
        for table, old, row in changes:
            if row is None:
                assert old is not None
                self.engine.push(table, remove(old))
            elif old is None:
                self.engine.push(table, add(row))
            else:
                self.engine.push(table, edit(row, old))
        self.engine.flush()
