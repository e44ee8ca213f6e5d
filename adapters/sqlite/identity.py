"""Recognising tables and columns after their names changed (pure).

SQLite moves a table's triggers along when the table is renamed, and rewrites the column names in them when a column
is renamed; it drops them with the table. The capture's triggers carry the table's number in their names and list
its columns, so they are traces of identity: what still bears the old trace is the same, everything else is new.

One thing leaves no trace: a last column dropped and added again under the same name and type between two looks.
Each schema statement moves the database's schema counter by one, so the counter betrays it: when it moved further
than the visible changes explain, the rows of every table this can have happened to are sent again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adapters.sqlite.catalog import Catalog, ColumnDef, TableDef

VACUUM_STEPS = 1
"""VACUUM moves the schema counter by this much and changes nothing."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What the triggers of one table say now: whose they are, where they are, and what became of its columns."""

    table_id: int
    table_name: str
    columns: tuple[str, ...]


def recognise(
    previous: Catalog, found: Sequence[TableDef], traces: Sequence[Trace], objects: Mapping[str, int], cookie: int
) -> Catalog:
    """The catalog of the tables found, with the identities they had or new ones; `cookie` is the counter now."""
    numbers = _Numbers(previous.next_id)
    by_name = {trace.table_name: trace for trace in sorted(traces, key=lambda trace: trace.table_id)}
    tables = tuple(_identified(previous, table, by_name.get(table.name), numbers) for table in found)
    catalog = Catalog(previous.origin, cookie, numbers.next, tables, objects)
    if previous.cookie < 0 or 0 <= cookie - previous.cookie <= _explained(previous, catalog) + VACUUM_STEPS:
        return catalog
    return replace(catalog, tables=tuple(_doubted(previous, table) for table in tables))


class _Numbers:
    """Identities, each given once."""

    def __init__(self, first: int) -> None:
        self.next = first

    def give(self) -> int:
        self.next += 1
        return self.next - 1


def _identified(previous: Catalog, found: TableDef, trace: Trace | None, numbers: _Numbers) -> TableDef:
    before = previous.table(trace.table_id) if trace else None
    if trace is None or before is None or len(trace.columns) != len(before.columns):
        return _new(found, numbers)
    now_called = dict(zip(before.column_names, trace.columns, strict=True))
    if tuple(now_called[name] for name in before.key) != found.key:
        return _new(found, numbers)
    columns = _identified_columns(before, found, now_called, numbers)
    return replace(found, id=before.id, columns=columns, revision=before.revision)


def _new(found: TableDef, numbers: _Numbers) -> TableDef:
    number = numbers.give()
    return replace(found, id=number, columns=tuple(replace(column, id=numbers.give()) for column in found.columns))


def _identified_columns(
    before: TableDef, found: TableDef, now_called: Mapping[str, str], numbers: _Numbers
) -> tuple[ColumnDef, ...]:
    """Columns keep their order for life and new ones come last: from the first that is out of order, all are new."""
    places = {now_called[column.name]: place for place, column in enumerate(before.columns)}
    columns, last, kept = [], -1, True
    for column in found.columns:
        place = places.get(column.name, -1)
        kept = kept and place > last
        columns.append(replace(column, id=before.columns[place].id if kept else numbers.give()))
        last = place
    return tuple(columns)


def _explained(previous: Catalog, catalog: Catalog) -> int:
    """How many schema statements the visible differences can stand for, at most."""
    before, now = previous.objects, catalog.objects
    steps = len(before.keys() ^ now.keys()) + sum(before[name] != now[name] for name in before.keys() & now.keys())
    for table in catalog.tables:
        old = previous.table(table.id)
        if old is None:
            steps += 1
            continue
        steps += len(_column_facts(old) ^ _column_facts(table))
    return steps


def _column_facts(table: TableDef) -> set[tuple[int, str]]:
    return {(column.id, column.name) for column in table.columns}


def _doubted(previous: Catalog, table: TableDef) -> TableDef:
    """The table with its rows to be sent again, if its last column can have been dropped and added."""
    last = table.columns[-1]
    indexed = {name for index in table.indexes for name, _ in index.columns}
    fixed = last.name in table.key or last.name in indexed or (last.not_null and last.default is None)
    if fixed or previous.table(table.id) is None:
        return table
    return replace(table, revision=table.revision + 1)
