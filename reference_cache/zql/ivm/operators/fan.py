"""FanOut and FanIn: an OR with subqueries among its members, as one filter stage.

FanOut hands a node or change to every branch, FanIn brings the branches together again. As stages are plain
functions, the pair is one object: it holds the branches between them.
"""

from __future__ import annotations

from reference_cache.zql.ivm.change import Change, Node
from reference_cache.zql.ivm.operators.collapse import collapse
from reference_cache.zql.ivm.operators.filter import FilterStage, Memo


class AnyBranch:
    """Passes what some branch passes. Invariant: one change in, at most one out, however many branches took it."""

    __slots__ = ("_branches",)

    def __init__(self, branches: list[FilterStage]) -> None:
        self._branches = branches

    def passes(self, node: Node, memo: Memo | None) -> bool:
        return any(branch.passes(node, memo) for branch in self._branches)

    def apply(self, change: Change) -> Change | None:
        emitted = [left for branch in self._branches if (left := branch.apply(change)) is not None]
        return collapse(change, emitted)
