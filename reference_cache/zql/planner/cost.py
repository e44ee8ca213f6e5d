"""What the planner knows about reading a table: the cost model's contract, and arithmetic that never raises.

A cost model answers for one use of a table (ordering, filters, columns that will be pinned by a join) how many rows
come out, what must be paid before the first one, and how many rows share one value of given columns. Estimates may
become infinite or undefined; the arithmetic here follows IEEE rules so that such a plan simply never wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from protocol.sync.ast import Condition, Exists, Ordering, Simple

Constraint: TypeAlias = tuple[str, ...]
"""Columns a join will pin to a value, in the order they were found."""

Fanout: TypeAlias = Callable[[Sequence[str]], float]


@dataclass(frozen=True, slots=True)
class TableCost:
    """`rows` expected, `startup` paid before the first row, `fanout` rows per distinct value of columns."""

    rows: float
    startup: float
    fanout: Fanout


class CostModel(Protocol):
    """Estimates for one use of a table; pure, so answers may be remembered. No constraint is None."""

    def __call__(
        self, table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None
    ) -> TableCost:
        """The cost of reading the table this way."""
        ...


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


def merge(first: Constraint | None, second: Constraint | None) -> Constraint | None:
    """Both constraints together; None means no constraint."""
    if first is None or second is None:
        return second if first is None else first
    return tuple(dict.fromkeys(first + second))


def divide(dividend: float, divisor: float) -> float:
    """IEEE division: x/0 is infinite, 0/0 undefined."""
    if divisor:
        return dividend / divisor
    return math.nan if dividend == 0 or math.isnan(dividend) else math.copysign(math.inf, dividend)


def smaller(a: float, b: float) -> float:
    """The minimum; undefined if either is."""
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)


def round_up(value: float) -> float:
    """The next whole number; infinite and undefined values stay as they are."""
    return math.ceil(value) if math.isfinite(value) else value


def any_match(selectivity: float, trials: float) -> float:
    """The chance that at least one of `trials` rows passes a filter of this selectivity."""
    miss = 1 - selectivity
    if miss < 0 and trials % 1:
        return math.nan
    return float(1 - miss**trials)
