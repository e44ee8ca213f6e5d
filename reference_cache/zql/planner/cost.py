"""The contract of a cost model, and the arithmetic of costs.

A cost model estimates one use of a table (an ordering, filters, columns that a join pins): the rows that come out, the
cost before the first row, and the rows per distinct value of some columns. Estimates may become infinite or undefined
(NaN). The arithmetic here follows IEEE rules and never raises, so that such a plan is never chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from protocol.sync.ast import Condition, Exists, Ordering, Simple

Constraint: TypeAlias = tuple[str, ...]
"""Columns that a join pins to a value, without duplicates, in the order in which joins add them."""

Fanout: TypeAlias = Callable[[Sequence[str]], float]
"""Returns the estimated rows per distinct non-null value of some columns."""


@dataclass(frozen=True, slots=True)
class TableCost:
    """`rows` is the number of rows expected, `startup` the cost before the first one (sorting), in rows read."""

    rows: float
    startup: float
    fanout: Fanout


class CostModel(Protocol):
    """Estimates one use of a table. Must be pure: results are cached. No constraint is None."""

    def __call__(
        self, table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None
    ) -> TableCost:
        """Returns the cost of reading `table` in this order, with these filters and pinned columns."""
        ...


def without_subqueries(condition: Condition) -> Condition | None:
    """Returns the condition without its EXISTS members, as cost models see it; None if nothing is left.

    A group that loses all members is dropped, and one with a single member left is unwrapped. Unlike
    `predicate.weaken` the result may be stronger than the original (an OR keeps its other branches); use it for
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
    """Returns the columns of both constraints; None means no constraint."""
    if first is None or second is None:
        return second if first is None else first
    return tuple(dict.fromkeys(first + second))


def divide(dividend: float, divisor: float) -> float:
    """IEEE division: x/0 is infinite, 0/0 is NaN."""
    if divisor:
        return dividend / divisor
    return math.nan if dividend == 0 or math.isnan(dividend) else math.copysign(math.inf, dividend)


def smaller(a: float, b: float) -> float:
    """The minimum; NaN if either is, where `min` would depend on the order of its arguments."""
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)


def round_up(value: float) -> float:
    """The next whole number; infinity and NaN are returned unchanged, where `math.ceil` raises."""
    return math.ceil(value) if math.isfinite(value) else value


def any_match(selectivity: float, trials: float) -> float:
    """The probability that at least one of `trials` rows passes a filter of this selectivity."""
    miss = 1 - selectivity
    # A selectivity above 1 (estimates may contradict each other): Python would return a complex number.
    if miss < 0 and trials % 1:
        return math.nan
    return float(1 - miss**trials)
