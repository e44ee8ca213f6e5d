"""FlippedJoin: EXISTS evaluated child first (an inner join).

Cheaper than `Join` with `ExistsStage` if few children match and there are many parents: it fetches the parents of the
matching children instead of testing every parent.
"""

from __future__ import annotations

from functools import partial

from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Edit, Node, Remove, Stream
from reference_cache.zql.ivm.operator import AnyOf, Columns, Key, Request, first, nodes
from reference_cache.zql.ivm.operators.correlation import Correlated
from reference_cache.zql.ivm.operators.undo import undone
from reference_cache.zql.schema import Row


class FlippedJoin(Correlated):
    """Passes the parents that have children, with the relationship `name` attached, in parent order.

    Invariant: a parent is in the output iff it has children, as far as changes were pushed for it.
    """

    def node(self, row: Row) -> Node:
        return self._attach(self._parent.node(row), nodes(self._children(row)))

    def _attach(self, node: Node, children: list[Node]) -> Node:
        return node.with_relationship(self._name, lambda: children)

    # Fetching

    def fetch(self, request: Request) -> Stream:
        return self._parents_first(request) if self._selects_parents(request) else self._children_first(request)

    def _selects_parents(self, request: Request) -> bool:
        """Whether the request selects parents by columns that do not select children."""
        columns = set(request.columns)
        return bool(columns) and (
            columns.isdisjoint(self._parent_columns) or columns.issuperset(self.schema.table.primary_key)
        )

    def _parents_first(self, request: Request) -> Stream:
        for node in self._parent.fetch(request):
            if node is YIELD:
                yield node
                continue
            children: list[Node] = []
            for child in self._children(node.row):
                if child is YIELD:
                    yield child
                else:
                    children.append(child)
            if children:
                yield self._attach(node, children)

    def _children_first(self, request: Request) -> Stream:
        groups: dict[Key, list[Node]] = {}
        for child in self._child.fetch(self._child_request(request)):
            if child is YIELD:
                yield child
            elif (key := self._child_key(child.row)) is not None:
                groups.setdefault(key, []).append(child)
        # After the last child of a key was removed, parents that have not been served yet still show that child, so
        # they must be fetched, too.
        earlier = self._children_before(groups)
        sought = groups.keys() | {self._half_pushed.key} if self._half_pushed and earlier else groups.keys()
        if not sought:
            return
        any_of = (*request.any_of, AnyOf(self._parent_columns, sought))
        for node in self._parent.fetch(Request(request.columns, request.key, any_of, request.start, request.reverse)):
            if node is YIELD:
                yield node
                continue
            key = self._parent_key(node.row)
            children = earlier if self._is_waiting(node.row, key) else groups.get(key, [])
            if children:
                yield self._attach(node, children)

    def _child_request(self, request: Request) -> Request:
        """The part of a parent request that selects children."""
        parts = zip(request.columns, _parts(request.columns, request.key), strict=True)
        child_of = dict(zip(self._parent_columns, self._child_columns, strict=True))
        known = [(child_of[column], value) for column, value in parts if column in child_of]
        if not known:
            return Request()
        columns = tuple(column for column, _ in known)
        values = tuple(value for _, value in known)
        return Request(columns, values[0] if len(values) == 1 else values)

    def _children_before(self, groups: dict[Key, list[Node]]) -> list[Node]:
        """The children that parents still show for which the present child change has not been pushed."""
        half = self._half_pushed
        if half is None:
            return []
        return nodes(undone(groups.get(half.key, []), half.change, self._child.schema))

    def _is_waiting(self, parent: Row, key: Key) -> bool:
        half = self._half_pushed
        return half is not None and key == half.key and self._parent_id(parent) in half.waiting

    # Pushing

    def _push_parent(self, change: Change) -> None:
        children = nodes(self._children(change.node.row))
        if not children:
            return
        node = self._attach(change.node, children)
        if isinstance(change, Add):
            self._output(Add(node))
        elif isinstance(change, Remove):
            self._output(Remove(node))
        elif isinstance(change, Edit):
            self._output(Edit(node, self._attach(change.old_node, children)))
        else:
            self._output(Child(node, change.name, change.change))

    def _push_child(self, change: Change) -> None:
        key = self._child_key(change.node.row)
        if key is None:
            return
        parents = self._parents(key)
        if parents:
            alone = isinstance(change, Add | Remove) and not self._has_other_child(key, change.node.row)
            self._push_each(parents, change, key, lambda parent: self._change_of(parent, change, alone))

    def _has_other_child(self, key: Key, row: Row) -> bool:
        order_key = self._child.schema.order_key
        own = order_key(row)
        stream = self._child.fetch(Request(self._child_columns, key))
        return first(node for node in stream if node is YIELD or order_key(node.row) != own) is not None

    def _change_of(self, parent: Node, change: Change, alone: bool) -> Change:
        """What a child change means for one parent."""
        if alone:
            node = self._attach(parent, [change.node])
            return Add(node) if isinstance(change, Add) else Remove(node)
        node = parent.with_relationship(self._name, partial(self._children, parent.row))
        return Child(node, self._name, change)


def _parts(columns: Columns, key: Key) -> tuple[Key, ...]:
    """A key's values by column."""
    if not columns:
        return ()
    return (key,) if len(columns) == 1 else key  # type: ignore[return-value]
