"""Join: gives every parent node a relationship with its child rows (a left outer, hierarchical join)."""

from __future__ import annotations

from functools import partial

from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Edit, Node, Remove, Stream
from reference_cache.zql.ivm.operator import Request
from reference_cache.zql.ivm.operators.correlation import Correlated
from reference_cache.zql.schema import Row


class Join(Correlated):
    """Passes every parent, with the relationship `name` attached."""

    def fetch(self, request: Request) -> Stream:
        attach = self._attach
        for node in self._parent.fetch(request):
            yield node if node is YIELD else attach(node)

    def node(self, row: Row) -> Node:
        return self._attach(self._parent.node(row))

    def _attach(self, node: Node) -> Node:
        return Node(node.row, {**node.relationships, self._name: partial(self._children, node.row)})

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
        if key is not None and (parents := self._parents(key)):
            self._push_each(parents, change, key, lambda parent: Child(self._attach(parent), self._name, change))
