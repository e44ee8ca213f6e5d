"""Recognises tables and columns after they were renamed. Pure.

When a table is renamed, SQLite moves its triggers to the new name; when a column is renamed, SQLite rewrites the name
in the text of the triggers; when a table is dropped, its triggers are dropped. The capture's triggers have the table's
number in their names and list its columns. So a table that still has the triggers is the same table, and any other is
new.

One change leaves no trace: the last column is dropped and added again with the same name and type between two polls.
Each schema statement adds one to SQLite's schema counter. If the counter has increased by more than the visible changes
account for, the rows of every table that this can have happened to are sent again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adapters.sqlite.catalog.model import Catalog, ColumnDef, TableDef

HIDDEN_STEPS = 2
"""Schema statements that drop and add a column.

One unexplained statement is most often VACUUM, which changes nothing.
"""


@dataclass(frozen=True, slots=True)
class Trace:
    """What the triggers say: the number of their table, its present name, and the present names of its columns."""

    table_id: int
    table_name: str
    columns: tuple[str, ...]


def recognise(
    previous: Catalog, present: Sequence[TableDef], traces: Sequence[Trace], objects: Mapping[str, int], cookie: int
) -> Catalog:
    """The catalog of the present tables, with the identities they had or new ones; `cookie` is the schema counter."""
    numbers = _Numbers(previous.next_id)
    by_name = {trace.table_name: trace for trace in sorted(traces, key=lambda trace: trace.table_id)}
    tables = tuple(_identified(previous, table, by_name.get(table.name), numbers) for table in present)
    catalog = Catalog(previous.origin, cookie, numbers.next, tables, objects)
    if previous.cookie < 0 or 0 <= cookie - previous.cookie < _visible_steps(previous, catalog) + HIDDEN_STEPS:
        return catalog
    return replace(catalog, tables=tuple(_resent_if_in_doubt(previous, table) for table in tables))


class _Numbers:
    """Hands out identities, each once."""

    def __init__(self, first: int) -> None:
        self.next = first  # not handed out yet; `take` increments it

    def take(self) -> int:
        self.next += 1
        return self.next - 1


def _identified(previous: Catalog, present: TableDef, trace: Trace | None, numbers: _Numbers) -> TableDef:
    before = previous.table(trace.table_id) if trace else None
    if trace is None or before is None or len(trace.columns) != len(before.columns):
        return _new(present, numbers)
    present_name = dict(zip(before.column_names, trace.columns, strict=True))
    if tuple(present_name[name] for name in before.key) != present.key:
        return _new(present, numbers)
    columns = _identified_columns(before, present, present_name, numbers)
    return replace(present, id=before.id, columns=columns, revision=before.revision)


def _new(present: TableDef, numbers: _Numbers) -> TableDef:
    number = numbers.take()
    return replace(present, id=number, columns=tuple(replace(column, id=numbers.take()) for column in present.columns))


def _identified_columns(
    before: TableDef, present: TableDef, present_name: Mapping[str, str], numbers: _Numbers
) -> tuple[ColumnDef, ...]:
    # SQLite never reorders columns and adds new ones at the end: from the first that is out of order, all are new.
    former = {present_name[column.name]: index for index, column in enumerate(before.columns)}
    columns, last, kept = [], -1, True
    for column in present.columns:
        index = former.get(column.name, -1)
        kept = kept and index > last
        columns.append(replace(column, id=before.columns[index].id if kept else numbers.take()))
        last = index
    return tuple(columns)


def _visible_steps(previous: Catalog, catalog: Catalog) -> int:
    """The least number of schema statements that make the visible differences."""
    kept = [(old, table) for table in catalog.tables if (old := previous.table(table.id)) is not None]
    columns = sum(_column_steps(old, table) for old, table in kept)
    renamed = sum(old.name != table.name for old, table in kept)
    texts_follow = renamed > 0 or columns > 0
    return columns + _table_steps(previous, catalog, renamed) + _other_steps(previous, catalog, texts_follow)


def _column_steps(old: TableDef, table: TableDef) -> int:
    before, now = ({column.id: column.name for column in t.columns} for t in (old, table))
    return len(before.keys() ^ now.keys()) + sum(before[number] != now[number] for number in before.keys() & now.keys())


def _table_steps(previous: Catalog, catalog: Catalog, renamed: int) -> int:
    """One for each name that is new or missing (a rename makes both), two for each table dropped and created again."""
    before, now = _texts(previous, "table"), _texts(catalog, "table")
    gone = {table.name for table in previous.tables if catalog.table(table.id) is None}
    new = {table.name for table in catalog.tables if previous.table(table.id) is None}
    recreated = [name for name in gone & new if before[name] != now[name]]
    return max(len(now.keys() - before.keys()), len(before.keys() - now.keys()), renamed) + 2 * len(recreated)


def _other_steps(previous: Catalog, catalog: Catalog, texts_follow: bool) -> int:
    """Statements for views, indexes and triggers. Dropping a table drops the latter two.

    A rename rewrites all three.
    """
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


def _resent_if_in_doubt(previous: Catalog, table: TableDef) -> TableDef:
    """With a higher revision if the last column can have been dropped and added again, so that all rows are sent."""
    last = table.columns[-1]
    indexed = {name for index in table.indexes for name, _ in index.columns}
    fixed = last.name in table.key or last.name in indexed or (last.not_null and last.default is None)
    if fixed or previous.table(table.id) is None:
        return table
    return replace(table, revision=table.revision + 1)
