"""EXISTS and NOT EXISTS, as a filter stage.

Incoming nodes have the subquery's rows as a relationship, which a `Join` before this stage has attached. A node passes
iff that relationship has rows (or has none, for NOT EXISTS).
"""

from __future__ import annotations

from reference_cache.zql.ivm.change import YIELD, Add, Change, Child, Node, Remove, Stream
from reference_cache.zql.ivm.operators.filter import Memo
from reference_cache.zql.ordering import KeyOf


def nothing() -> Stream:
    """A relationship without rows."""
    return ()


class ExistsStage:
    """Passes nodes by whether a relationship is empty.

    Invariant: a node is in the output iff its relationship is not empty (EXISTS) or is (NOT EXISTS). `key_of` returns a
    parent's join key; None if no two parents have the same one. Parents with the same key have the same children, so
    one test serves them all during a fetch.
    """

    def __init__(self, relationship: str, *, negated: bool, key_of: KeyOf | None) -> None:
        self._relationship = relationship
        self._negated = negated
        self._key_of = key_of

    def passes(self, node: Node, memo: Memo | None) -> bool:
        if memo is None or self._key_of is None:
            return self._holds(node)
        key = (id(self), self._key_of(node.row))
        known = memo.get(key)
        if known is None:
            known = memo[key] = self._holds(node)
        return known

    def _holds(self, node: Node) -> bool:
        return self._has_children(node) is not self._negated

    def _has_children(self, node: Node) -> bool:
        return any(child is not YIELD for child in node.relationships[self._relationship]())

    def apply(self, change: Change) -> Change | None:
        if isinstance(change, Child) and change.name == self._relationship:
            if isinstance(change.change, Add):
                return self._child_added(change)
            if isinstance(change.change, Remove):
                return self._child_removed(change, change.change.node)
        return change if self._holds(change.node) else None

    def _child_added(self, change: Child) -> Change | None:
        node = change.node
        if self._count(node) != 1:
            return None if self._negated else change
        if self._negated:
            return Remove(node.with_relationship(self._relationship, nothing))
        return Add(node)

    def _child_removed(self, change: Child, removed: Node) -> Change | None:
        node = change.node
        if self._has_children(node):
            return None if self._negated else change
        if self._negated:
            return Add(node)
        return Remove(node.with_relationship(self._relationship, lambda: (removed,)))

    def _count(self, node: Node) -> int:
        """How many children a node has, counted up to 2."""
        count = 0
        for child in node.relationships[self._relationship]():
            if child is not YIELD:
                count += 1
                if count > 1:
                    break
        return count


def shared_key(key_of: KeyOf, parent_columns: tuple[str, ...], primary_key: tuple[str, ...]) -> KeyOf | None:
    """The memo key of an EXISTS; None if every parent has a key of its own, so that a memo would never be hit."""
    return None if set(parent_columns) == set(primary_key) else key_of
