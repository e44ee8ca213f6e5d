"""A query's result as a tree, kept up to date in place.

A `View` is the end of a pipeline: it takes the hydrated nodes and then every change, and holds the tree that the
query's *format* asks for. Relationships not in the format (those of EXISTS) are not shown; a hidden level (a
junction) is skipped and its children stand in its place.

`result` gives plain data: a list of dictionaries, or one dictionary or None for a singular query. Parts that
have not changed since the last look are the same objects as before. Do not modify them. Listeners are told
on `flush`, once per transaction, and only if something changed.
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
    """The data contradicts the query's format, or a change contradicts the view."""

    code = "view-contradiction"


class Entry:
    """A row of the result with what hangs below it; `count` says along how many paths it is reached."""

    __slots__ = ("below", "count", "rendered", "row")

    def __init__(self, row: Row, count: int, below: dict[str, Level]) -> None:
        self.row = row
        self.count = count
        self.below = below
        self.rendered: dict[str, Any] | None = None


class Level:
    """The entries under one parent (or at the root), in order. Invariant: distinct keys, counts of at least one."""

    __slots__ = ("_entries", "_format", "_keys", "_name", "_rendered", "_schema", "_stale")

    def __init__(self, name: str, schema: InputSchema, format: Format) -> None:
        self._name = name
        self._schema = _shown(schema, name)
        self._format = format
        self._keys: list[SortKey] = []
        self._entries: list[Entry] = []
        self._rendered: Result = None
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
        place = bisect_left(self._keys, key)
        if self._is_at(place, key):
            self._entries[place].count += 1
            self._apply_below(self._entries[place].below, node, Add)
            return
        if self._format.singular and self._entries:
            raise ViewError(
                f"relationship {self._name!r} is declared to have one row of {self._schema.table.name!r} "
                f"but has {self._entries[0].row!r} and {node.row!r}; declare it as many, or correct the data"
            )
        self._keys.insert(place, key)
        self._entries.insert(place, Entry(node.row, 1, self._below(node)))

    def _below(self, node: Node) -> dict[str, Level]:
        levels = {
            name: Level(name, self._schema.relationships[name], format)
            for name, format in self._format.relationships.items()
        }
        self._apply_below(levels, node, Add)
        return levels

    def _apply_below(self, levels: dict[str, Level], node: Node, kind: type[Add | Remove]) -> None:
        """Every path to a row counts for what hangs below it too, so that one path's loss takes just its share."""
        for name, level in levels.items():
            schema = self._schema.relationships[name]
            for child in node.relationships[name]():
                if child is not YIELD:
                    level.apply(kind(child), schema)

    def _is_at(self, place: int, key: SortKey) -> bool:
        return place < len(self._keys) and self._keys[place] == key

    def _place_of(self, row: Row) -> int:
        key = self._schema.order_key(row)
        place = bisect_left(self._keys, key)
        if not self._is_at(place, key):
            raise ViewError(f"{row!r} of table {self._schema.table.name!r} is not in the view")
        return place

    def _remove(self, node: Node) -> None:
        place = self._place_of(node.row)
        entry = self._entries[place]
        if entry.count > 1:
            self._apply_below(entry.below, node, Remove)
            entry.rendered = None
        self._release(place)

    def _release(self, place: int) -> Entry:
        entry = self._entries[place]
        entry.count -= 1
        if not entry.count:
            del self._keys[place]
            del self._entries[place]
        return entry

    def _edit(self, row: Row, old_row: Row) -> None:
        key, old_key = self._schema.order_key(row), self._schema.order_key(old_row)
        if key != old_key:
            self._move(row, key, old_row)
            return
        entry = self._entries[self._place_of(old_row)]
        entry.row = row
        entry.rendered = None

    def _move(self, row: Row, key: SortKey, old_row: Row) -> None:
        """Every path to the row brings its own edit; until the last has, the entry stands at both places."""
        below = self._release(self._place_of(old_row)).below
        place = bisect_left(self._keys, key)
        if self._is_at(place, key):
            self._entries[place].count += 1
        else:
            self._keys.insert(place, key)
            self._entries.insert(place, Entry(row, 1, below))

    def _child(self, change: Child) -> None:
        if change.name not in self._format.relationships:
            return
        entry = self._entries[self._place_of(change.node.row)]
        entry.rendered = None
        entry.below[change.name].apply(change.change, self._schema.relationships[change.name])

    def render(self) -> Result:
        """This level as plain data."""
        if self._stale:
            entries = [self._render_entry(entry) for entry in self._entries]
            self._rendered = (entries[0] if entries else None) if self._format.singular else entries
            self._stale = False
        return self._rendered

    def _render_entry(self, entry: Entry) -> dict[str, Any]:
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
        self._dirty = False
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
        """Be told the result on each flush that follows a change; returns how to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def flush(self) -> None:
        """The transaction is complete: tell the listeners if anything changed."""
        if self._dirty:
            self._dirty = False
            for listener in list(self._listeners):
                listener(self.result)

    def destroy(self) -> None:
        """Let go of the sources."""
        self._input.destroy()
