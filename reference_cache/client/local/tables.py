"""The rows a client shows: the server's, with its own unconfirmed mutations on top.

The engine's tables hold what is shown. Where a mutation has changed a row, what the server says of it is kept beside
(`_server`), so that the mutation can be taken back. When the server's rows move, everything is done in a draft: back to
the server's rows, the poke's changes, the mutations that are still open, once more. Only the difference between what is
shown and the draft goes into the engine, so a poke that confirms a mutation costs the views nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reference_cache.client.local.draft import Draft, Place
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.operator import Key
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.schema import Row, Schema
from reference_cache.zql.tables.memory import MemoryTable

Replay = Callable[[Draft], Iterable[Place]]
"""Runs the open mutations on a draft; the places they wrote."""


class LocalTables:
    """Invariant: the engine shows the server's rows with the open mutations applied, except inside a call."""

    def __init__(self, schema: Schema, rows: Mapping[str, Iterable[Row]]) -> None:
        self._schema = schema
        self._tables = {name: MemoryTable(table, rows.get(name, ())) for name, table in schema.tables.items()}
        self._server: dict[Place, Row | None] = {}
        self.engine = Engine(schema, lambda table: Source(self._tables[table.name]))

    def place(self, table: str, values: Mapping[str, Any]) -> Place:
        """Where the row with these key columns belongs."""
        return table, self.key(table, self._schema.tables[table].row(values))

    def key(self, table: str, row: Row) -> Key:
        """The primary key of a row."""
        rows = self._tables[table]
        key: Key = rows.keys[rows.table.primary_key](row)
        return key

    def draft(self) -> Draft:
        """The tables as they are shown, for trying something out."""
        return Draft(self._schema, self._tables)

    def server_row(self, place: Place) -> Row | None:
        """What the server says of a place."""
        table, key = place
        return self._server[place] if place in self._server else self._tables[table].get(key)

    def server_places(self) -> list[Place]:
        """Every place at which the server has a row."""
        shown = {(name, self.key(name, row)) for name, table in self._tables.items() for row in table.rows()}
        return [place for place in shown | self._server.keys() if self.server_row(place) is not None]

    def adopt(self, draft: Draft, written: Iterable[Place]) -> None:
        """Show a draft of `draft()`, in which a new mutation wrote these places."""
        for place in written:
            self._server.setdefault(place, self.server_row(place))
        self._show(draft)

    def rebase(self, changes: Mapping[Place, Row | None], replay: Replay) -> None:
        """The server's rows change; what is open is done again on top of them."""
        draft = self.draft()
        for place, row in {**self._server, **changes}.items():
            draft.set(place, row)
        server = dict(draft.changed)
        self._server = {
            place: server[place] if place in server else self._tables[place[0]].get(place[1]) for place in replay(draft)
        }
        self._show(draft)

    def _show(self, draft: Draft) -> None:
        """Removals first: a place may be taken by another row of a relationship that has room for one."""
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
