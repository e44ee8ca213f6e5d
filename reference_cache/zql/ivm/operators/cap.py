"""Cap: any `limit` rows of each partition; the limit below an EXISTS.

An EXISTS needs to know that there is a row, not which one. So Cap needs no ordering: it keeps the rows of its output in
memory and serves later fetches from there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from reference_cache.zql.ivm.change import YIELD, Add, Change, Edit, Node, Pause, Remove, Stream
from reference_cache.zql.ivm.one_input import OneInput
from reference_cache.zql.ivm.operator import Columns, Input, Key, Request
from reference_cache.zql.ordering import join_key
from reference_cache.zql.schema import Row


class Kept:
    """The rows in the output for one partition, by primary key; `complete` if the partition has no others."""

    __slots__ = ("complete", "rows")

    def __init__(self, rows: dict[Key, Row], complete: bool) -> None:
        self.rows = rows
        self.complete = complete


class Cap(OneInput):
    """Passes up to `limit` rows of each partition.

    Invariant: a partition that was fetched has `limit` rows out, or all of its rows. Fetches name the partition.
    """

    def __init__(
        self, input: Input, limit: int, partition: Columns, watch: Callable[[Key], None] = lambda key: None
    ) -> None:
        super().__init__(input)
        self._limit = limit
        self._partition = partition
        self._partition_of = join_key(partition, input.schema.table)
        self._key = join_key(input.schema.table.primary_key, input.schema.table)
        self._watch = watch
        # By partition key; `_hydrate` adds to it and nothing is ever removed.
        self._kept: dict[Key, Kept] = {}

    def fetch(self, request: Request) -> Stream:
        if request.columns != self._partition or request.start is not None or request.any_of:
            raise AssertionError(f"a cap by {self._partition} is fetched by its partition only")
        if not self._limit or request.key is None:
            return
        kept = self._kept.get(request.key)
        if kept is None:
            yield from (yield from self._hydrate(request.key, request))
            return
        node_of = self._input.node
        for row in list(kept.rows.values()):
            yield node_of(row)

    def _hydrate(self, key: Key, request: Request) -> Generator[Pause, None, list[Node]]:
        """Reads a partition before any row is yielded: a consumer that stops early must not leave half a state."""
        nodes: list[Node] = []
        for node in self._input.fetch(request):
            if node is YIELD:
                yield node
                continue
            nodes.append(node)
            if len(nodes) == self._limit:
                break
        rows = {self._key(node.row): node.row for node in nodes}
        self._kept[key] = Kept(rows, complete=len(rows) < self._limit)
        self._watch(key)
        return nodes

    def _push(self, change: Change) -> None:
        kept = self._kept.get(self._partition_of(change.node.row))
        if kept is None:
            return
        if isinstance(change, Add):
            self._add(kept, change)
        elif isinstance(change, Remove):
            self._remove(kept, change)
        elif isinstance(change, Edit):
            self._edit(kept, change)
        elif self._key(change.node.row) in kept.rows:
            self._output(change)

    def _add(self, kept: Kept, change: Add) -> None:
        if len(kept.rows) < self._limit:
            kept.rows[self._key(change.node.row)] = change.node.row
            self._output(change)
        else:
            kept.complete = False

    def _remove(self, kept: Kept, change: Remove) -> None:
        if kept.rows.pop(self._key(change.node.row), None) is None:
            return
        # The row is forgotten before the remove is pushed: operators above may fetch during the push. With limit 1 the
        # parent of an EXISTS is removed and added again, as in the official engine.
        replacement = None if kept.complete else self._other_row(kept, change.node.row)
        self._output(change)
        if replacement is not None:
            kept.rows[self._key(replacement.row)] = replacement.row
            self._output(Add(replacement))

    def _other_row(self, kept: Kept, row: Row) -> Node | None:
        """Some row of the partition that is not in the output; None, and `complete`, if there is none."""
        for node in self._input.fetch(Request(self._partition, self._partition_of(row))):
            if node is not YIELD and self._key(node.row) not in kept.rows:
                return node
        kept.complete = True
        return None

    def _edit(self, kept: Kept, change: Edit) -> None:
        old_key, key = self._key(change.old_node.row), self._key(change.node.row)
        if old_key not in kept.rows:
            return
        if key != old_key:
            del kept.rows[old_key]
        kept.rows[key] = change.node.row
        self._output(change)
