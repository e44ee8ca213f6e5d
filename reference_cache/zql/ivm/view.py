"""A query's result as a tree, updated in place.

A `View` is the end of a pipeline: it takes the hydrated nodes and then every change, and holds the tree in the query's
*format*. Relationships not in the format (those of EXISTS) are not shown; a hidden level (a junction) is skipped, and
its children are shown instead.

`result` is plain data: a list of dictionaries, or one dictionary or None for a singular query. Parts that have not
changed since the last call are the same objects as before. Do not modify them. Listeners are called on `flush`, once
per transaction, and only if something changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from reference_cache.zql.format import Format
from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Edit, Node, Pause, Remove, Stream
from reference_cache.zql.ivm.operator import EVERYTHING, Input, InputSchema
from reference_cache.zql.ivm.sorted_rows import SortKey
from reference_cache.zql.schema import Row

Result: TypeAlias = list[dict[str, Any]] | dict[str, Any] | None
Listener: TypeAlias = Callable[[Result], None]


class ViewError(RuntimeError):
    """The data does not fit the format (several rows where one is declared), or a change does not fit the view."""

    code = "view-contradiction"


class ViewEntry:
    """A row of the result with the levels below it. `Level` writes all attributes."""

    __slots__ = ("below", "count", "rendered", "row")

    def __init__(self, row: Row, count: int, below: dict[str, Level]) -> None:
        self.row = row
        # Along how many paths the row is reached.
        self.count = count
        self.below = below
        # The row as plain data; None if it, or something below it, has changed since the last `render`.
        self.rendered: dict[str, Any] | None = None


class Level:
    """The entries under one parent (or at the root), in order. Invariant: distinct keys, counts of at least one."""

    __slots__ = ("_entries", "_format", "_keys", "_name", "_rendered", "_schema", "_stale")

    def __init__(self, name: str, schema: InputSchema, format: Format) -> None:
        self._name = name
        self._schema = _shown(schema, name)
        self._format = format
        # Parallel lists, in order; written by `apply`.
        self._keys: list[SortKey] = []
        # The entry of each key.
        self._entries: list[ViewEntry] = []
        # The last result of `render`.
        self._rendered: Result = None
        # Whether something has changed since; set by `apply`, reset by `render`.
        self._stale = True

    def apply(self, change: Change, schema: InputSchema) -> None:
        """Apply a change whose nodes have this schema; hidden levels are unwrapped on the way."""
        if schema.hidden:
            self._apply_hidden(change, schema)
            return
        self._stale = True
        if isinstance(change, Add):
            self._add(change.node)
        elif isinstance(change, Remove):
            self._remove(change.node)
        elif isinstance(change, Edit):
            self._edit(change.node.row, change.old_node.row)
        else:
            self._child(change)

    def _apply_hidden(self, change: Change, schema: InputSchema) -> None:
        below = schema.relationships[self._name]
        if isinstance(change, Child):
            if change.name == self._name:
                self.apply(change.change, below)
        elif not isinstance(change, Edit):
            kind = type(change)
            for node in change.node.relationships[self._name]():
                if node is not YIELD:
                    self.apply(kind(node), below)

    def _add(self, node: Node) -> None:
        key = self._schema.order_key(node.row)
        index = bisect_left(self._keys, key)
        if self._is_at(index, key):
            self._entries[index].count += 1
            self._apply_below(self._entries[index].below, node, Add)
            return
        if self._format.singular and self._entries:
            raise ViewError(
                f"relationship {self._name!r} is declared to have one row of {self._schema.table.name!r} "
                f"but has {self._entries[0].row!r} and {node.row!r}; declare it as many, or correct the data"
            )
        self._keys.insert(index, key)
        self._entries.insert(index, ViewEntry(node.row, 1, self._below(node)))

    def _below(self, node: Node) -> dict[str, Level]:
        levels = {
            name: Level(name, self._schema.relationships[name], format)
            for name, format in self._format.relationships.items()
        }
        self._apply_below(levels, node, Add)
        return levels

    def _apply_below(self, levels: dict[str, Level], node: Node, kind: type[Add | Remove]) -> None:
        """Count a path to a row for everything below it, too, so that losing the path removes only what it added."""
        for name, level in levels.items():
            schema = self._schema.relationships[name]
            for child in node.relationships[name]():
                if child is not YIELD:
                    level.apply(kind(child), schema)

    def _is_at(self, index: int, key: SortKey) -> bool:
        return index < len(self._keys) and self._keys[index] == key

    def _index_of(self, row: Row) -> int:
        key = self._schema.order_key(row)
        index = bisect_left(self._keys, key)
        if not self._is_at(index, key):
            raise ViewError(f"{row!r} of table {self._schema.table.name!r} is not in the view")
        return index

    def _remove(self, node: Node) -> None:
        index = self._index_of(node.row)
        entry = self._entries[index]
        if entry.count > 1:
            self._apply_below(entry.below, node, Remove)
            entry.rendered = None
        self._release(index)

    def _release(self, index: int) -> ViewEntry:
        entry = self._entries[index]
        entry.count -= 1
        if not entry.count:
            del self._keys[index]
            del self._entries[index]
        return entry

    def _edit(self, row: Row, old_row: Row) -> None:
        key, old_key = self._schema.order_key(row), self._schema.order_key(old_row)
        if key != old_key:
            self._move(row, key, old_row)
            return
        entry = self._entries[self._index_of(old_row)]
        entry.row = row
        entry.rendered = None

    def _move(self, row: Row, key: SortKey, old_row: Row) -> None:
        """Each path to the row pushes its own edit; until the last one has, there is an entry at both positions."""
        below = self._release(self._index_of(old_row)).below
        index = bisect_left(self._keys, key)
        if self._is_at(index, key):
            self._entries[index].count += 1
        else:
            self._keys.insert(index, key)
            self._entries.insert(index, ViewEntry(row, 1, below))

    def _child(self, change: Child) -> None:
        if change.name not in self._format.relationships:
            return
        entry = self._entries[self._index_of(change.node.row)]
        entry.rendered = None
        entry.below[change.name].apply(change.change, self._schema.relationships[change.name])

    def render(self) -> Result:
        """This level as plain data."""
        if self._stale:
            entries = [self._render_entry(entry) for entry in self._entries]
            self._rendered = (entries[0] if entries else None) if self._format.singular else entries
            self._stale = False
        return self._rendered

    def _render_entry(self, entry: ViewEntry) -> dict[str, Any]:
        if entry.rendered is None:
            entry.rendered = self._schema.table.named(entry.row)
            for name, level in entry.below.items():
                entry.rendered[name] = level.render()
        return entry.rendered


def _shown(schema: InputSchema, name: str) -> InputSchema:
    while schema.hidden:
        schema = schema.relationships[name]
    return schema


class View:
    """The result of one pipeline. Invariant: after each push the tree equals a fresh evaluation of the query."""

    def __init__(self, input: Input, format: Format) -> None:
        self._input = input
        self._schema = input.schema
        self._root = Level("", input.schema, format)
        # Whether something has changed since the last `flush`.
        self._dirty = False
        # Written by `listen` and by the functions it returns.
        self._listeners: list[Listener] = []
        input.set_output(self._push)

    def hydrate(self) -> Iterator[Pause]:
        """Read the result; yields the stream's pauses."""
        stream: Stream = self._input.fetch(EVERYTHING)
        for node in stream:
            if node is YIELD:
                yield node
            else:
                self._push(Add(node))

    def _push(self, change: Change) -> None:
        self._dirty = True
        self._root.apply(change, self._schema)

    @property
    def result(self) -> Result:
        """The tree as plain data."""
        return self._root.render()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call a function with the result on each flush that follows a change; returns a function that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def flush(self) -> None:
        """The transaction is complete: call the listeners if anything changed."""
        if self._dirty:
            self._dirty = False
            for listener in list(self._listeners):
                listener(self.result)

    def destroy(self) -> None:
        """Disconnect from the sources."""
        self._input.destroy()
