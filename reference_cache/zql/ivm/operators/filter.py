"""Conditions on a stream: filter stages, and the operator that runs a tree of them.

A *stage* is one part of a condition. It makes at most one change of a change, so it is a function from change to change
(or None), and a tree of stages needs no operators between its parts: `and` is `AllOf` (here), `or` with subqueries is
`fan.AnyBranch`, EXISTS is `exists.ExistsStage`, everything else is `Filter`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeAlias

from reference_cache.zql.ivm.change import YIELD, Change, Node, Stream, filter_change
from reference_cache.zql.ivm.one_input import OneInput
from reference_cache.zql.ivm.operator import Input, Request
from reference_cache.zql.predicate import Predicate

Memo: TypeAlias = dict[tuple[int, Hashable], bool]
"""Results of EXISTS tests during one fetch, by stage and join key."""


class FilterStage(Protocol):
    """One part of a condition."""

    def passes(self, node: Node, memo: Memo | None) -> bool:
        """Whether a node satisfies this part; `memo` is None while a change is being pushed."""
        ...

    def apply(self, change: Change) -> Change | None:
        """What is left of a change after this part."""
        ...


class Filter:
    """A predicate on the row alone. Stateless."""

    __slots__ = ("_predicate",)

    def __init__(self, predicate: Predicate) -> None:
        self._predicate = predicate

    def passes(self, node: Node, memo: Memo | None) -> bool:
        return self._predicate(node.row)

    def apply(self, change: Change) -> Change | None:
        return filter_change(change, self._predicate)


class AllOf:
    """An AND: each stage gets what the one before passes."""

    __slots__ = ("_stages",)

    def __init__(self, stages: list[FilterStage]) -> None:
        self._stages = stages

    def passes(self, node: Node, memo: Memo | None) -> bool:
        return all(stage.passes(node, memo) for stage in self._stages)

    def apply(self, change: Change) -> Change | None:
        left: Change | None = change
        for stage in self._stages:
            if left is None:
                return None
            left = stage.apply(left)
        return left


class FilterPipeline(OneInput):
    """The operator around a tree of stages. Invariant: its output is the input's nodes that pass."""

    def __init__(self, input: Input, stage: FilterStage) -> None:
        super().__init__(input)
        self._stage = stage
        # Whether a change is being pushed through this operator; written by `_push`.
        self._pushing = False

    def fetch(self, request: Request) -> Stream:
        # While a child change is pushed for one parent after the other, two parents with the same key may show
        # different children, so the result for one must not be used for the other.
        memo: Memo | None = None if self._pushing else {}
        passes = self._stage.passes
        for node in self._input.fetch(request):
            if node is YIELD or passes(node, memo):
                yield node

    def _push(self, change: Change) -> None:
        outer, self._pushing = self._pushing, True
        try:
            left = self._stage.apply(change)
            if left is not None:
                self._output(left)
        finally:
            self._pushing = outer
