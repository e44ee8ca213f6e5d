"""FanOut and FanIn: an OR with subqueries among its members, as one filter stage.

In the official engine FanOut passes a node or change to every branch, and FanIn merges what the branches make of it.
Stages are plain functions here, so the pair is one object.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference_cache.zql.ivm.change import Add, Change, Child, Edit, Node, Remove
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


def collapse(incoming: Change, emitted: Sequence[Change]) -> Change | None:
    """The one change that the output of an OR makes, of what its branches made of `incoming`; None if they made none.

    If a branch kept the kind of the change, that is the result: the row was in the output and still is. Otherwise all
    branches made an add, or all a remove; or, of an edit, one branch made a remove and another an add, which together
    are the edit.
    """
    if not emitted:
        return None
    if len(emitted) == 1:
        return emitted[0]
    kept = next((change for change in emitted if type(change) is type(incoming)), None)
    if kept is not None:
        return kept
    added = next((change for change in emitted if isinstance(change, Add)), None)
    removed = next((change for change in emitted if isinstance(change, Remove)), None)
    if added is None or removed is None:
        return added or removed
    if isinstance(incoming, Child):
        raise AssertionError(f"branches both added and removed {incoming.node.row!r} for one child change")
    return Edit(added.node, removed.node)
