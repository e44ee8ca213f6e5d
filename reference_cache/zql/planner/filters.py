"""The part of a condition a table alone can judge, as the planner's cost models see it."""

from __future__ import annotations

from protocol.sync.ast import Condition, Exists, Simple


def without_subqueries(condition: Condition) -> Condition | None:
    """The condition without its EXISTS members; a group that loses all members goes too, one left alone is unwrapped.

    Unlike `predicate.weaken` this may be stronger than the original (an OR keeps its other branches), so it is good for
    estimates only.
    """
    if isinstance(condition, Exists):
        return None
    if isinstance(condition, Simple) or not condition.conditions:
        return condition
    kept = tuple(part for member in condition.conditions if (part := without_subqueries(member)) is not None)
    if len(kept) < 2:
        return kept[0] if kept else None
    return type(condition)(kept)
