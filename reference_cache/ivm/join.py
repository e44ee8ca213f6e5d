"""Join: gives every parent node a relationship with its child rows (a left outer, hierarchical join)."""

from __future__ import annotations

from functools import partial

from protocol.sync.ast import Correlation, System
from reference_cache.ivm.change import YIELD, Add, Change, Child, Edit, Node, Remove, Stream
from reference_cache.ivm.operator import Input, InputSchema, Key, Push, Request, no_output, nodes
from reference_cache.ivm.undo import undone
from reference_cache.query.ordering import join_key
from reference_cache.query.schema import Row


class HalfPushed:
    """A child change that some matching parents have been told and others have not."""

    __slots__ = ("change", "key", "untold")

    def __init__(self, change: Change, key: Key, untold: set[Key]) -> None:
        self.change = change
        self.key = key
        self.untold = untold


class Join:
    """Attaches the relationship `name`.

    Invariant: a parent's relationship shows a child change from the moment that parent has been told of it, not before.
    Relies on sources to split edits that would change a join column.
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
        self._half_pushed: HalfPushed | None = None
        self._output: Push = no_output
        self.schema: InputSchema = parent.schema.with_relationship(name, child.schema, hidden=hidden, system=system)
        parent.set_output(self._push_parent)
        child.set_output(self._push_child)

    def set_output(self, push: Push) -> None:
        self._output = push

    def destroy(self) -> None:
        self._parent.destroy()
        self._child.destroy()

    def fetch(self, request: Request) -> Stream:
        attach = self._attach
        for node in self._parent.fetch(request):
            yield node if node is YIELD else attach(node)

    def node(self, row: Row) -> Node:
        return self._attach(self._parent.node(row))

    def _attach(self, node: Node) -> Node:
        return Node(node.row, {**node.relationships, self._name: partial(self._children, node.row)})

    def _children(self, parent: Row) -> Stream:
        key = self._parent_key(parent)
        if key is None:
            return ()
        stream = self._child.fetch(Request(self._child_columns, key))
        half = self._half_pushed
        if half is not None and key == half.key and self._parent_id(parent) in half.untold:
            return undone(stream, half.change, self.schema.relationships[self._name])
        return stream

    def _push_parent(self, change: Change) -> None:
        if isinstance(change, Add):
            self._output(Add(self._attach(change.node)))
        elif isinstance(change, Remove):
            self._output(Remove(self._attach(change.node)))
        elif isinstance(change, Edit):
            self._output(Edit(self._attach(change.node), self._attach(change.old_node)))
        else:
            self._output(Child(self._attach(change.node), change.name, change.change))

    def _push_child(self, change: Change) -> None:
        key = self._child_key(change.node.row)
        if key is None:
            return
        parents = nodes(self._parent.fetch(Request(self._parent_columns, key)))
        if len(parents) == 1:
            self._output(Child(self._attach(parents[0]), self._name, change))
        elif parents:
            self._push_one_by_one(parents, HalfPushed(change, key, {self._parent_id(p.row) for p in parents}))

    def _push_one_by_one(self, parents: list[Node], half: HalfPushed) -> None:
        self._half_pushed = half
        try:
            for parent in parents:
                half.untold.discard(self._parent_id(parent.row))
                self._output(Child(self._attach(parent), self._name, half.change))
        finally:
            self._half_pushed = None
