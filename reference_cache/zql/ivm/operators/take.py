"""Take: the first `limit` rows, of the whole input or of each partition.

State per partition, in memory: the *window* (the rows in the output) and the *reserve* (rows that follow it directly).
Keeping the rows saves refetching the last row and its predecessor, and the reserve replaces a row that leaves the
window without a fetch: one fetch refills it for many removals. `node` gives the relationships of a kept row.

Partitions that were never fetched have no state, and changes to them are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Edit, Node, Pause, Remove, SourceChange, Stream
from reference_cache.zql.ivm.one_input import OneInput
from reference_cache.zql.ivm.operator import Columns, Input, Key, Request, StartPosition
from reference_cache.zql.ivm.sorted_rows import SortedRows, SortKey
from reference_cache.zql.ivm.store import KeyExtractors, matches
from reference_cache.zql.schema import Row

RESERVE = 32
"""Rows that one fetch puts into an empty reserve; it is cut back to this when it has grown to twice as many."""

SEARCHED = 16
"""Windows up to this size are searched row by row; in larger ones the input finds the rows."""

WHOLE: Key = ()
"""The partition key of an input that is not partitioned."""


class TakeWindow:
    """The beginning of one partition.

    Invariant: `rows` followed by `reserve` are the partition's first rows without gap; `complete` says that
    none follow. Between two pushes `rows` is full unless it holds the whole partition.
    """

    __slots__ = ("complete", "reserve", "rows")

    def __init__(self) -> None:
        # All three are written by this class and by `Take`: the rows in the output, those that follow, and whether the
        # two are the whole partition.
        self.rows = SortedRows()
        self.reserve = SortedRows()
        self.complete = False

    def keep_back(self, key: SortKey, row: Row) -> None:
        """Add a row that follows the window to the reserve, unless it follows the whole reserve."""
        reserve = self.reserve
        if not self.complete and (not reserve.keys or key > reserve.keys[-1]):
            return
        reserve.insert(key, row)
        self._trim()

    def push_back_last(self) -> Row:
        """Move the window's last row to the reserve."""
        key = self.rows.keys[-1]
        row = self.rows.pop(-1)
        self.reserve.keys.insert(0, key)
        self.reserve.rows.insert(0, row)
        self._trim()
        return row

    def _trim(self) -> None:
        if len(self.reserve.rows) > 2 * RESERVE:
            del self.reserve.keys[RESERVE:]
            del self.reserve.rows[RESERVE:]
            self.complete = False

    def is_behind(self, key: SortKey) -> bool:
        """Whether a row would follow the window and the reserve, with possible gaps."""
        if self.complete:
            return False
        known = self.reserve.keys or self.rows.keys
        return bool(known) and key > known[-1]

    def drop_from_reserve(self, key: SortKey) -> None:
        """Remove a row from the reserve, if it is there."""
        index = self.reserve.find(key)
        if index >= 0:
            self.reserve.pop(index)


class Take(OneInput):
    """Passes the first `limit` rows.

    Invariant: never more than `limit` rows are in the output, not even between two changes; so when one row displaces
    another, the remove is pushed first. `watch` is called with each partition key that has state from now on.
    """

    def __init__(
        self, input: Input, limit: int, partition: Columns = (), watch: Callable[[Key], None] = lambda key: None
    ) -> None:
        super().__init__(input)
        self._limit = limit
        self._partition = partition
        self._order_key = input.schema.order_key
        self._keys = KeyExtractors(input.schema.table)
        self._watch = watch
        # By partition key; `_hydrate` adds to it and nothing is ever removed.
        self._windows: dict[Key, TakeWindow] = {}

    # Fetching

    def fetch(self, request: Request) -> Stream:
        if not self._limit:
            return
        if self._partition and request.columns != self._partition:
            yield from self._across_partitions(request)
            return
        key = request.key if self._partition else WHOLE
        if key is None:
            return
        window = self._windows.get(key)
        if window is None:
            nodes = yield from self._hydrate(key)
            if self._asks_for_all(request):
                yield from nodes
                return
            window = self._windows[key]
        if request.columns != self._partition and len(window.rows.rows) > SEARCHED:
            yield from self._across_partitions(request)
            return
        node_of = self._input.node
        for row in self._selected(window, request):
            yield node_of(row)

    def _hydrate(self, key: Key) -> Generator[Pause, None, list[Node]]:
        """Reads a window before any of it is yielded: a consumer that stops early must not leave half a state."""
        window = TakeWindow()
        window.complete = True
        nodes: list[Node] = []
        for node in self._input.fetch(Request(self._partition, key if self._partition else None)):
            if node is YIELD:
                yield node
                continue
            nodes.append(node)
            if len(nodes) == self._limit:
                window.complete = False
                break
        window.rows.rows = [node.row for node in nodes]
        window.rows.keys = [self._order_key(row) for row in window.rows.rows]
        self._windows[key] = window
        self._watch(key)
        return nodes

    def _asks_for_all(self, request: Request) -> bool:
        """Whether a request asks for a whole window, in order."""
        plain = not request.any_of and request.start is None and not request.reverse
        return plain and (bool(self._partition) or not request.columns)

    def _selected(self, window: TakeWindow, request: Request) -> Iterator[Row]:
        if self._asks_for_all(request):
            return iter(window.rows.rows)
        rows = reversed(window.rows.rows) if request.reverse else iter(window.rows.rows)
        return (row for row in rows if matches(row, request, self._keys, self._order_key, self.schema.position_key))

    def _across_partitions(self, request: Request) -> Stream:
        """The input's rows that are in some window."""
        for node in self._input.fetch(request):
            if node is YIELD:
                yield node
                continue
            window = self._window_of(node.row)
            if window is not None and window.rows.find(self._order_key(node.row)) >= 0:
                yield node

    def _window_of(self, row: Row) -> TakeWindow | None:
        if not self._partition:
            return self._windows.get(WHOLE)
        return self._windows.get(self._keys[self._partition](row))

    # Pushing

    def ignores(self, change: SourceChange) -> bool:
        """Whether a change to the level's own rows cannot change the window or its reserve, whether or not it passes
        the conditions in between.

        Conditions keep state only for rows that were read. A row behind the reserve is read, and filtered, when the
        reserve is next filled.
        """
        window = self._window_of(change.node.row)
        if window is None:
            return True
        if isinstance(change, Edit) and not window.is_behind(self._order_key(change.old_node.row)):
            return False
        return window.is_behind(self._order_key(change.node.row))

    def _push(self, change: Change) -> None:
        window = self._window_of(change.node.row)
        if window is None:
            return
        if isinstance(change, Add):
            self._add(window, change)
        elif isinstance(change, Remove):
            self._remove(window, change)
        elif isinstance(change, Edit):
            self._edit(window, change)
        else:
            self._child(window, change)

    def _add(self, window: TakeWindow, change: Add) -> None:
        row = change.node.row
        key = self._order_key(row)
        rows = window.rows
        if len(rows.rows) < self._limit:
            rows.insert(key, row)
            self._output(change)
        elif key < rows.keys[-1]:
            self._displace_last(window, key, change)
        else:
            window.keep_back(key, row)

    def _displace_last(self, window: TakeWindow, key: SortKey, change: Add) -> None:
        # Remove first: the output never has more than `limit` rows.
        last = window.push_back_last()
        self._output(Remove(self._input.node(last)))
        window.rows.insert(key, change.node.row)
        self._output(change)

    def _remove(self, window: TakeWindow, change: Remove) -> None:
        key = self._order_key(change.node.row)
        index = window.rows.find(key)
        if index < 0:
            window.drop_from_reserve(key)
            return
        self._refill(window)
        window.rows.pop(index)
        self._output(change)
        self._replace(window)

    def _replace(self, window: TakeWindow) -> None:
        """Move the first reserve row into the window, if there is one."""
        if window.reserve.rows:
            key = window.reserve.keys[0]
            row = window.reserve.pop(0)
            window.rows.keys.append(key)
            window.rows.rows.append(row)
            self._output(Add(self._input.node(row)))

    def _refill(self, window: TakeWindow) -> None:
        """Make sure the reserve holds the row after the window, if there is one."""
        if window.reserve.rows or window.complete:
            return
        last = window.rows.rows[-1]
        columns = self._partition
        key = self._keys[columns](last) if columns else None
        window.complete = True
        reserve = window.reserve
        for node in self._input.fetch(Request(columns, key, start=StartPosition(last, inclusive=False))):
            if node is YIELD:
                continue
            reserve.keys.append(self._order_key(node.row))
            reserve.rows.append(node.row)
            if len(reserve.rows) == RESERVE:
                window.complete = False
                break

    def _edit(self, window: TakeWindow, change: Edit) -> None:
        row = change.node.row
        key, old_key = self._order_key(row), self._order_key(change.old_node.row)
        index = window.rows.find(old_key)
        if index < 0:
            self._edit_outside(window, change, key, old_key)
        elif key == old_key:
            window.rows.rows[index] = row
            self._output(change)
        else:
            self._edit_inside(window, change, key, index)

    def _edit_outside(self, window: TakeWindow, change: Edit, key: SortKey, old_key: SortKey) -> None:
        window.drop_from_reserve(old_key)
        if key < window.rows.keys[-1]:
            self._displace_last(window, key, Add(change.node))
        else:
            window.keep_back(key, change.node.row)

    def _edit_inside(self, window: TakeWindow, change: Edit, key: SortKey, index: int) -> None:
        rows, row = window.rows, change.node.row
        if key < rows.keys[-1]:
            rows.pop(index)
            rows.insert(key, row)
            self._output(change)
            return
        self._refill(window)
        window.drop_from_reserve(key)
        rows.pop(index)
        if not window.reserve.keys or key < window.reserve.keys[0]:
            rows.insert(key, row)
            self._output(change)
        else:
            window.keep_back(key, row)
            self._output(Remove(change.old_node))
            self._replace(window)

    def _child(self, window: TakeWindow, change: Child) -> None:
        if window.rows.find(self._order_key(change.node.row)) >= 0:
            self._output(change)
