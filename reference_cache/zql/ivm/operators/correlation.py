"""The base of both joins: a parent and a child input, whose rows are joined by columns.

A child change may affect several parents, and is pushed for one parent after the other. Meanwhile an operator above may
fetch any of them. A parent for which the change was not pushed yet then has its children without the change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from protocol.sync.ast import Correlation, System
from reference_cache.zql.ivm.change import Change, Node, Stream
from reference_cache.zql.ivm.operator import Input, InputSchema, Key, Push, Request, no_output, nodes, to_nobody
from reference_cache.zql.ivm.operators.undo import undone
from reference_cache.zql.ordering import join_key
from reference_cache.zql.schema import Row


class HalfPushed:
    """A child change that is being pushed: for some of its parents it was pushed, for those in `waiting` not yet."""

    __slots__ = ("change", "key", "waiting")

    def __init__(self, change: Change, key: Key, waiting: set[Key]) -> None:
        self.change = change
        self.key = key
        # The primary keys of the parents for which it has not been pushed; `Correlated._push_each` removes them.
        self.waiting = waiting


class Correlated(ABC):
    """Two inputs, and the relationship `name` between their rows.

    Invariant: a parent's children show a change from the moment it is pushed for that parent, not before. Relies on
    sources to split edits that would change a join column.
    """

    def __init__(
        self, parent: Input, child: Input, correlation: Correlation, name: str, *, hidden: bool, system: System
    ) -> None:
        self._parent = parent
        self._child = child
        self._name = name
        self._parent_columns = correlation.parent_field
        self._child_columns = correlation.child_field
        self._parent_key = join_key(correlation.parent_field, parent.schema.table)
        self._child_key = join_key(correlation.child_field, child.schema.table)
        self._parent_id = join_key(parent.schema.table.primary_key, parent.schema.table)
        # Set by `_push_each` while a child change is pushed for several parents.
        self._half_pushed: HalfPushed | None = None
        # Set by `set_output`, and again by `destroy`.
        self._output: Push = no_output
        self.schema: InputSchema = parent.schema.with_relationship(name, child.schema, hidden=hidden, system=system)
        parent.set_output(self._push_parent)
        child.set_output(self._push_child)

    def set_output(self, push: Push) -> None:
        self._output = push

    def destroy(self) -> None:
        self._output = to_nobody
        self._parent.destroy()
        self._child.destroy()

    @abstractmethod
    def _push_parent(self, change: Change) -> None:
        """Take a change of the parent input."""

    @abstractmethod
    def _push_child(self, change: Change) -> None:
        """Take a change of the child input."""

    def _children(self, parent: Row) -> Stream:
        """The children of a parent, without a change that was not pushed for it yet."""
        key = self._parent_key(parent)
        if key is None:
            return ()
        stream = self._child.fetch(Request(self._child_columns, key))
        half = self._half_pushed
        if half is not None and key == half.key and self._parent_id(parent) in half.waiting:
            return undone(stream, half.change, self._child.schema)
        return stream

    def _parents(self, key: Key) -> list[Node]:
        """The parents that a child change affects."""
        return nodes(self._parent.fetch(Request(self._parent_columns, key)))

    def _push_each(
        self, parents: Sequence[Node], change: Change, key: Key, change_of: Callable[[Node], Change]
    ) -> None:
        """Push what a child change means for each parent, in order; `key` is the join key, `change_of` the meaning."""
        if len(parents) == 1:
            self._output(change_of(parents[0]))
            return
        self._half_pushed = half = HalfPushed(change, key, {self._parent_id(parent.row) for parent in parents})
        try:
            for parent in parents:
                half.waiting.discard(self._parent_id(parent.row))
                self._output(change_of(parent))
        finally:
            self._half_pushed = None
