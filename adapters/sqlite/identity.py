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

HIDDEN_STEPS = 2
"""What dropping and adding a column takes; a single step more is most often VACUUM, which changes nothing."""


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
    if previous.cookie < 0 or 0 <= cookie - previous.cookie < _explained(previous, catalog) + HIDDEN_STEPS:
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
    """How many schema statements the visible differences stand for, at least."""
    kept = [(old, table) for table in catalog.tables if (old := previous.table(table.id)) is not None]
    columns = sum(_column_steps(old, table) for old, table in kept)
    renamed = sum(old.name != table.name for old, table in kept)
    texts_follow = renamed > 0 or columns > 0
    return columns + _table_steps(previous, catalog, renamed) + _other_steps(previous, catalog, texts_follow)


def _column_steps(old: TableDef, table: TableDef) -> int:
    before, now = ({column.id: column.name for column in t.columns} for t in (old, table))
    return len(before.keys() ^ now.keys()) + sum(before[number] != now[number] for number in before.keys() & now.keys())


def _table_steps(previous: Catalog, catalog: Catalog, renamed: int) -> int:
    """One for each name that came or went (a rename does both), two for each table made anew under its old name."""
    before, now = _texts(previous, "table"), _texts(catalog, "table")
    gone = {table.name for table in previous.tables if catalog.table(table.id) is None}
    new = {table.name for table in catalog.tables if previous.table(table.id) is None}
    anew = [name for name in gone & new if before[name] != now[name]]
    return max(len(now.keys() - before.keys()), len(before.keys() - now.keys()), renamed) + 2 * len(anew)


def _other_steps(previous: Catalog, catalog: Catalog, texts_follow: bool) -> int:
    """Views, indexes and triggers; the latter two go with their table, and all follow renamed names."""
    steps = 0
    for kind in ("view", "index", "trigger"):
        before, now = _texts(previous, kind), _texts(catalog, kind)
        tables_went = {table.id for table in previous.tables} - {table.id for table in catalog.tables}
        steps += len(now.keys() - before.keys())
        steps += 0 if tables_went and kind != "view" else len(before.keys() - now.keys())
        steps += 0 if texts_follow else 2 * sum(before[name] != now[name] for name in before.keys() & now.keys())
    return steps


def _texts(catalog: Catalog, kind: str) -> dict[str, int]:
    return {name[len(kind) + 1 :]: text for name, text in catalog.objects.items() if name.startswith(f"{kind} ")}


def _doubted(previous: Catalog, table: TableDef) -> TableDef:
    """The table with its rows to be sent again, if its last column can have been dropped and added."""
    last = table.columns[-1]
    indexed = {name for index in table.indexes for name, _ in index.columns}
    fixed = last.name in table.key or last.name in indexed or (last.not_null and last.default is None)
    if fixed or previous.table(table.id) is None:
        return table
    return replace(table, revision=table.revision + 1)
