"""A child stream as it was before a change, for joins that have pushed the change for some of its parents only.

A join pushes a child's change for the matching parents one at a time. Until a parent's turn, its children must be those
before the change: an added child is hidden, a removed one is put back at its position, an edited one has its old row,
and a change further down is undone inside the right child.
"""

from __future__ import annotations

from functools import partial

from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Edit, Node, Remove, Stream
from reference_cache.zql.ivm.operator import InputSchema


def undone(stream: Stream, change: Change, schema: InputSchema) -> Stream:
    """The stream without the effect of the change; `schema` is the stream's own."""
    if isinstance(change, Add):
        return _without(stream, change.node, schema)
    if isinstance(change, Remove):
        return _with(stream, change.node, schema)
    if isinstance(change, Edit):
        return _with(_without(stream, change.node, schema), change.old_node, schema)
    return _child_undone(stream, change, schema)


def _without(stream: Stream, hidden: Node, schema: InputSchema) -> Stream:
    key = schema.order_key(hidden.row)
    for node in stream:
        if node is YIELD or schema.order_key(node.row) != key:
            yield node


def _with(stream: Stream, restored: Node, schema: InputSchema) -> Stream:
    key = schema.order_key(restored.row)
    placed = schema.ordering is None
    if placed:
        yield restored
    for node in stream:
        if not placed and node is not YIELD and key < schema.order_key(node.row):
            placed = True
            yield restored
        yield node
    if not placed:
        yield restored


def _child_undone(stream: Stream, change: Child, schema: InputSchema) -> Stream:
    key = schema.order_key(change.node.row)
    for node in stream:
        if node is not YIELD and schema.order_key(node.row) == key:
            below = schema.relationships[change.name]
            yield node.with_relationship(change.name, partial(_reopened, node, change, below))
        else:
            yield node


def _reopened(node: Node, change: Child, schema: InputSchema) -> Stream:
    return undone(node.relationships[change.name](), change.change, schema)
