"""From the output of a query pipeline to the rows the query references.

A query's rows are all rows in its tree, including junction rows and the rows that made an EXISTS true; only what is
below a `permissions` relationship stays on the server. A row reached n times is reported n times, so a receiver counts
references: hydrated and added +1, removed -1, edited 0. At zero the row is no longer part of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Edit, Node, Pause, Stream
from reference_cache.zql.ivm.operator import InputSchema
from reference_cache.zql.schema import Row


class RowReceiver(Protocol):
    """Takes the references of one query, in the order in which the pipeline reports them.

    Called during hydration and inside pushes, on the engine's thread. An exception stops the hydration; during a push
    it fails the query (`Engine.failed`).
    """

    def hydrated(self, table: str, row: Row) -> None:
        """The first evaluation of the query reached the row."""

    def added(self, table: str, row: Row) -> None:
        """A change made one more reference to the row."""

    def removed(self, table: str, row: Row) -> None:
        """A change took one reference to the row; `row` has its last values."""

    def edited(self, table: str, row: Row) -> None:
        """The row has new values; it is referenced as often as before."""


class RowReferences:
    """Reports one level of a query to a receiver. Stateless; one object per level of the pipeline's schema."""

    __slots__ = ("_below", "_receiver", "_table")

    def __init__(self, schema: InputSchema, receiver: RowReceiver) -> None:
        self._receiver = receiver
        self._table = schema.table.name
        self._below = {
            name: RowReferences(child, receiver)
            for name, child in schema.relationships.items()
            if child.system != "permissions"
        }

    def push(self, change: Change) -> None:
        """Report what a change of the pipeline's output means for rows."""
        if isinstance(change, Child):
            below = self._below.get(change.name)
            if below is not None:
                below.push(change.change)
        elif isinstance(change, Edit):
            self._receiver.edited(self._table, change.node.row)
        else:
            receiver = self._receiver
            self._report(change.node, receiver.added if isinstance(change, Add) else receiver.removed)

    def hydrate(self, nodes: Stream) -> Iterator[Pause]:
        """Report the nodes of a fetch stream and all nodes below them, depth first; yields the streams' pauses."""
        hydrated, table, levels = self._receiver.hydrated, self._table, self._below
        for node in nodes:
            if node is YIELD:
                yield node
                continue
            hydrated(table, node.row)
            if levels:
                for name, children in node.relationships.items():
                    below = levels.get(name)
                    if below is not None:
                        yield from below.hydrate(children())

    def _report(self, node: Node, report: Callable[[str, Row], None]) -> None:
        """Report the node and each node below it, depth first; pauses are skipped, because a push is a plain call."""
        report(self._table, node.row)
        for name, children in node.relationships.items():
            below = self._below.get(name)
            if below is None:
                continue
            for child in children():
                if child is not YIELD:
                    below._report(child, report)
