"""The planner: decides which EXISTS conditions are evaluated child first (flipped).

Each query level is planned separately: every pattern of flips is tried on the level's graph, and the first of the
cheapest is used. A plan never changes the result of a query, only the work and which child rows are synced. The input's
orderings must be complete; the output is the same query with `flip` set on every EXISTS and NOT EXISTS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from protocol.sync.ast import Condition, CorrelatedSubquery, Exists, Query, Simple, map_leaves
from reference_cache.zql.planner.build import build_graph, union_candidates
from reference_cache.zql.planner.cost import Constraint, CostModel
from reference_cache.zql.planner.graph import PlanGraph

MAX_FLIPPABLE_JOINS = 9
"""With more, trying 2^n patterns costs more than it can save; every undecided join is then left unflipped."""

MAX_PATTERNS = 2048
"""Patterns tried for one query on all its levels together; levels beyond that are left unflipped."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The decision for one join; `flippable`: the planner was free to choose."""

    name: str
    op: str
    flipped: bool
    flippable: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """One flip pattern (bit i flips the i-th flippable join) and its estimated total cost."""

    pattern: int
    cost: float


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """The decision for one query level. `best` is None if nothing was tried, or no attempt has a finite cost.

    `skipped` is the number of flippable joins if they were too many to try, else 0. `related` is by alias.
    """

    table: str
    joins: tuple[JoinPlan, ...]
    attempts: tuple[Attempt, ...] = ()
    best: Attempt | None = None
    skipped: int = 0
    related: Mapping[str, LevelPlan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A planned query, and the attempts and decisions that led to it."""

    query: Query
    root: LevelPlan


Checkpoint = Callable[[], object]
"""Called before each attempt; may pause the thread, or raise to stop planning."""


def plan(query: Query, model: CostModel, checkpoint: Checkpoint = bool) -> Query:
    """Returns the query with every flip decided. Runs the model in the calling thread."""
    return explain(query, model, checkpoint).query


def explain(query: Query, model: CostModel, checkpoint: Checkpoint = bool) -> QueryPlan:
    """Like `plan`, with every pattern that was tried."""
    root = _plan_level(query, model, None, _Attempts(MAX_PATTERNS, checkpoint))
    return QueryPlan(_apply(query, root), root)


@dataclass(slots=True)
class _Attempts:
    """How many patterns may still be tried."""

    # Counted down by `_search`, level by level.
    left: int
    checkpoint: Checkpoint


def _plan_level(query: Query, model: CostModel, base: Constraint | None, allowed: _Attempts) -> LevelPlan:
    # Of several relationships with one alias only the last is evaluated, so its plan serves them all.
    related = {
        each.alias: _plan_level(each.subquery, model, tuple(dict.fromkeys(each.correlation.child_field)), allowed)
        for each in query.related
    }
    graph = build_graph(query, model, base)
    attempts, skipped = _search(graph, allowed)
    best = _cheapest(attempts)
    graph.reset()
    if best is not None:
        _flip(graph, best.pattern)
    return LevelPlan(query.table, _joins(graph), attempts, best, skipped, related)


def _joins(graph: PlanGraph) -> tuple[JoinPlan, ...]:
    return tuple(JoinPlan(join.name, join.op, join.flipped, join.flippable) for join in graph.joins)


def _search(graph: PlanGraph, allowed: _Attempts) -> tuple[tuple[Attempt, ...], int]:
    """Returns the attempts in ascending order of pattern, and the number of flippable joins if they were too many."""
    flippable = [join for join in graph.joins if join.flippable]
    if not flippable or len(flippable) > MAX_FLIPPABLE_JOINS or 2 ** len(flippable) > allowed.left:
        return (), len(flippable)
    allowed.left -= 2 ** len(flippable)
    unions = [union_candidates(fan_out) for fan_out in graph.fan_outs]
    attempts: list[Attempt] = []
    for pattern in range(2 ** len(flippable)):
        allowed.checkpoint()
        graph.reset()
        _flip(graph, pattern)
        for fan_in, between in unions:
            if fan_in is not None and any(join.flipped for join in between):
                fan_in.union = True
        attempts.append(Attempt(pattern, _total_cost(graph)))
    return tuple(attempts), 0


def _flip(graph: PlanGraph, pattern: int) -> None:
    for bit, join in enumerate(join for join in graph.joins if join.flippable):
        join.flipped = bool(pattern >> bit & 1)


def _total_cost(graph: PlanGraph) -> float:
    for join in graph.joins:
        if join.flipped:
            join.child.unlimit()
    graph.end.constrain((), None)
    estimate = graph.end.estimate(1, ())
    return estimate.cost + estimate.startup


def _cheapest(attempts: tuple[Attempt, ...]) -> Attempt | None:
    best, lowest = None, math.inf
    for attempt in attempts:
        if attempt.cost < lowest:
            best, lowest = attempt, attempt.cost
    return best


def _apply(query: Query, level: LevelPlan) -> Query:
    flips = iter([join.flipped for join in level.joins])

    def apply_related(related: CorrelatedSubquery) -> CorrelatedSubquery:
        below = level.related.get(related.alias)
        return related if below is None else replace(related, subquery=_apply(related.subquery, below))

    return replace(
        query,
        where=_apply_condition(query.where, flips),
        related=tuple(map(apply_related, query.related)),
    )


def _apply_condition(condition: Condition | None, flips: Iterator[bool]) -> Condition | None:
    def decide(leaf: Simple | Exists) -> Condition:
        if isinstance(leaf, Simple):
            return leaf
        # Joins were numbered child first, so the subquery takes its decisions before the condition itself.
        subquery = replace(leaf.related.subquery, where=_apply_condition(leaf.related.subquery.where, flips))
        return replace(leaf, flip=next(flips, False), related=replace(leaf.related, subquery=subquery))

    return None if condition is None else map_leaves(condition, decide)
