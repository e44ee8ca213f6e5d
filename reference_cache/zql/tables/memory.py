"""A table in memory, with sorted indexes made on demand.

A table has its rows by primary key and, for each combination of constrained columns and ordering that is read, an
index: rows grouped by the columns' key, each group sorted. A write only appends to a list per index. An index applies
the list when it is next read, and is dropped when the list becomes long; so an ordering that is needed once, for a
hydration, costs later writes almost nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator

from protocol.sync.ast import And, Column, Condition, Literal, Ordering, Simple
from reference_cache.zql.ivm.change import Add, Edit, Remove, SourceChange
from reference_cache.zql.ivm.operator import Columns, Key, Request, StartPosition
from reference_cache.zql.ivm.position import position_key
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.ivm.store import KeyExtractors, SourceError, matches
from reference_cache.zql.ordering import KeyOf, join_key, sort_key
from reference_cache.zql.predicate import Predicate, compile_predicate
from reference_cache.zql.schema import Row, TableSchema

WHOLE: Key = ()
"""The group of an index that does not group."""

# An index with more unapplied changes than LAG_ALLOWED plus one LAG_ALLOWED_SHARE-th of the rows is dropped.
LAG_ALLOWED = 1_000
LAG_ALLOWED_SHARE = 8
SCANS_BEFORE_INDEX = 2
"""Reads by the columns that a filter pins before an index on them is made."""

FEW_ROWS = 8
"""Up to this many rows are searched and sorted without an index."""


class MemoryIndex:
    """Rows grouped by key, each group sorted. Invariant: with the changes in `lag` applied it has the table's rows.

    All groups are made at construction; each is sorted when it is first read.
    """

    def __init__(self, group_of: KeyOf | None, order_key: KeyOf, rows: Iterable[Row]) -> None:
        self._group_of = group_of
        self._order_key = order_key
        # Rows by the key of the grouping columns, without empty groups and without the key None, which joins nothing.
        self._groups: dict[Key, list[Row]] = {}
        # Changes (old row, new row) that are not applied yet; `MemoryTable` appends, `_catch_up` empties it.
        self.lag: list[tuple[Row | None, Row | None]] = []
        if group_of is None:
            self._groups[WHOLE] = list(rows)
        else:
            self._gather(group_of, rows)
        # The groups that are not sorted yet; `_sorted_group` sorts one when it is first read.
        self._unsorted: set[Key] = {key for key, group in self._groups.items() if len(group) > 1}

    def _gather(self, group_of: KeyOf, rows: Iterable[Row]) -> None:
        groups = self._groups
        for row in rows:
            key = group_of(row)
            if key in groups:
                groups[key].append(row)
            else:
                groups[key] = [row]
        groups.pop(None, None)

    def group(self, key: Key) -> list[Row] | None:
        """Returns the present rows with this key in order; None if there are none. Do not modify the list."""
        if self.lag:
            self._catch_up()
        return self._sorted_group(key)

    def _sorted_group(self, key: Key) -> list[Row] | None:
        group = self._groups.get(key)
        if group is not None and key in self._unsorted:
            self._unsorted.discard(key)
            group.sort(key=self._order_key)
        return group

    def _catch_up(self) -> None:
        for old, new in self.lag:
            if old is not None:
                self._discard(old)
            if new is not None:
                self._insert(new)
        self.lag.clear()

    def _key_of(self, row: Row) -> Key:
        return WHOLE if self._group_of is None else self._group_of(row)

    def _insert(self, row: Row) -> None:
        key = self._key_of(row)
        if key is None:
            return
        group = self._sorted_group(key)
        if group is None:
            self._groups[key] = [row]
        else:
            insort(group, row, key=self._order_key)

    def _discard(self, row: Row) -> None:
        key = self._key_of(row)
        if key is None:
            return
        group = self._sorted_group(key)
        assert group is not None
        del group[bisect_left(group, self._order_key(row), key=self._order_key)]
        if not group:
            del self._groups[key]


class MemoryTable:
    """A `RowStore` in memory. Invariant: one row per primary key; each index is `lag` changes behind the rows."""

    def __init__(self, table: TableSchema, rows: Iterable[Row] = ()) -> None:
        self.table = table
        self.keys = KeyExtractors(table)
        self._key = self.keys[table.primary_key]
        # By primary key.
        self._rows: dict[Key, Row] = {}
        # Made on first use; dropped when they lag too far behind.
        self._indexes: dict[tuple[Columns, Ordering], MemoryIndex] = {}
        # How often each combination was read by pinned columns; see `is_worth_an_index`.
        self._pinned_reads: Counter[tuple[Columns, Ordering]] = Counter()
        for row in rows:
            self._insert(row)
        self._primary_order: Ordering = tuple((column, "asc") for column in table.primary_key)
        self.index((), self._primary_order).group(WHOLE)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Key) -> Row | None:
        """The row with this primary key."""
        return self._rows.get(key)

    def rows(self) -> Iterable[Row]:
        """All rows, in no particular order."""
        return self._rows.values()

    def put(self, key: Key, row: Row) -> None:
        """Set the row with this primary key, whether or not there is one."""
        old = self._rows.get(key)
        self._rows[key] = row
        self._note(old, row)

    def drop(self, key: Key) -> None:
        """Delete the row with this primary key, if there is one."""
        old = self._rows.pop(key, None)
        if old is not None:
            self._note(old, None)

    def clear(self) -> None:
        """Remove all rows."""
        self._rows.clear()
        self._indexes.clear()

    def reader(self, ordering: Ordering | None, condition: Condition | None) -> MemoryReader:
        return MemoryReader(self, ordering, condition)

    def apply(self, change: SourceChange) -> None:
        new = None if isinstance(change, Remove) else change.node.row
        old = change.old_node.row if isinstance(change, Edit) else None if isinstance(change, Add) else change.node.row
        if old is not None:
            old = self._delete(old)
        if new is not None:
            try:
                self._insert(new)
            except SourceError:
                if old is not None:
                    self._insert(old)
                raise
        self._note(old, new)

    def _note(self, old: Row | None, new: Row | None) -> None:
        allowed = LAG_ALLOWED + len(self._rows) // LAG_ALLOWED_SHARE
        for name, index in list(self._indexes.items()):
            index.lag.append((old, new))
            if len(index.lag) > allowed:
                del self._indexes[name]

    def _insert(self, row: Row) -> None:
        key = self._key(row)
        if key is None:
            raise SourceError(f"row {row!r} of table {self.table.name!r} has a null in its primary key")
        if key in self._rows:
            raise SourceError(f"table {self.table.name!r} already has a row with key {key!r}; it cannot be added")
        self._rows[key] = row

    def _delete(self, row: Row) -> Row:
        key = self._key(row)
        stored = self._rows.pop(key, None)
        if stored is None:
            raise SourceError(f"table {self.table.name!r} has no row with key {key!r}; it cannot be changed")
        return stored

    def is_worth_an_index(self, columns: Columns, ordering: Ordering) -> bool:
        """Counts a read with these columns pinned by a filter; returns whether there were enough to make an index."""
        self._pinned_reads[columns, ordering] += 1
        return self._pinned_reads[columns, ordering] > SCANS_BEFORE_INDEX

    def index(self, columns: Columns, ordering: Ordering) -> MemoryIndex:
        """Returns the index for constrained columns and an ordering; makes it on first use, which reads all rows."""
        index = self._indexes.get((columns, ordering))
        if index is None:
            group_of = join_key(columns, self.table) if columns else None
            index = MemoryIndex(group_of, sort_key(ordering, self.table), self._rows.values())
            self._indexes[columns, ordering] = index
        return index


class MemoryReader:
    """A `Reader` over a `MemoryTable`; without an ordering it follows the primary key."""

    def __init__(self, table: MemoryTable, ordering: Ordering | None, condition: Condition | None) -> None:
        schema = table.table
        self._table = table
        self._ordering: Ordering = ordering or tuple((column, "asc") for column in schema.primary_key)
        self._order_key = sort_key(self._ordering, schema)
        self._position_key = position_key(self._ordering, schema)
        self._predicate: Predicate | None = None if condition is None else compile_predicate(condition, schema)
        pinned = pinned_values(condition, schema)
        self._pinned_columns = tuple(sorted(pinned))
        self._pinned_key = join_key(self._pinned_columns, schema)(schema.row(pinned)) if pinned else None

    def rows(self, request: Request) -> Iterator[Row]:
        rows = self._matching(request)
        return iter(rows) if self._predicate is None else filter(self._predicate, rows)

    def _matching(self, request: Request) -> Iterable[Row]:
        if request.any_of:
            return self._any_of(request)
        columns, key = request.columns, request.key
        if columns == self._table.table.primary_key:
            return self._by_primary_key(request)
        if not columns and self._pinned_columns and self._table.is_worth_an_index(self._pinned_columns, self._ordering):
            columns, key = self._pinned_columns, self._pinned_key
        if columns and key is None:
            return ()
        if len(self._table) <= FEW_ROWS:
            return self._few(request)
        group = self._table.index(columns, self._ordering).group(key if columns else WHOLE)
        return () if group is None else self._from_start(group, request.start, request.reverse)

    def _few(self, request: Request) -> Iterable[Row]:
        rows = [row for row in self._table.rows() if self._satisfies(row, request)]
        rows.sort(key=self._order_key, reverse=request.reverse)
        return rows

    def _from_start(self, group: list[Row], start: StartPosition | None, reverse: bool) -> Iterable[Row]:
        if start is None:
            return reversed(group) if reverse else group
        # Backwards, an inclusive start is the end of the result; forwards, its beginning.
        bisect = bisect_right if start.inclusive is reverse else bisect_left
        index = bisect(group, self._position_key(start.row), key=self._order_key)
        return reversed(group[:index]) if reverse else group[index:]

    def _by_primary_key(self, request: Request) -> Iterable[Row]:
        row = self._table.get(request.key)
        if row is None or (request.start is not None and not self._satisfies(row, request)):
            return ()
        return (row,)

    def _any_of(self, request: Request) -> Iterable[Row]:
        """The rows of one list's groups, checked against the rest of the request and sorted."""
        shortest = min(request.any_of, key=lambda any_of: len(any_of.keys))
        rows: list[Row] = []
        for key in shortest.keys:
            rows += self._group_rows(shortest.columns, key)
        if request.columns or request.start is not None or len(request.any_of) > 1:
            rows = [row for row in rows if self._satisfies(row, request)]
        rows.sort(key=self._order_key, reverse=request.reverse)
        return rows

    def _group_rows(self, columns: Columns, key: Key) -> Iterable[Row]:
        if columns == self._table.table.primary_key:
            row = self._table.get(key)
            return () if row is None else (row,)
        group = self._table.index(columns, self._ordering).group(key)
        return () if group is None else group

    def _satisfies(self, row: Row, request: Request) -> bool:
        return matches(row, request, self._table.keys, self._order_key, self._position_key)


def pinned_values(condition: Condition | None, table: TableSchema) -> dict[str, object]:
    """The columns that a condition pins to one value by `=` with a literal, alone or in ANDs."""
    if isinstance(condition, And):
        pinned: dict[str, object] = {}
        for member in condition.conditions:
            pinned.update(pinned_values(member, table))
        return pinned
    if not isinstance(condition, Simple) or condition.op != "=" or not isinstance(condition.right, Literal):
        return {}
    left, value = condition.left, condition.right.value
    if not isinstance(left, Column) or isinstance(value, tuple) or table.columns[left.name].type == "json":
        return {}
    return {left.name: value}


def memory_source(table: TableSchema, rows: Iterable[Row] = ()) -> Source:
    """A source whose rows live in memory."""
    return Source(MemoryTable(table, rows))
