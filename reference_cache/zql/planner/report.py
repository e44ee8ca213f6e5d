"""Shows a plan: as text for a terminal, as a Mermaid flow chart for a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.sync.ast import Exists, Query, exists_conditions
from reference_cache.zql.planner.planner import Attempt, LevelPlan, QueryPlan

SHOWN_ATTEMPTS = 8
"""Attempts listed per query level, cheapest first."""


def as_text(plan: QueryPlan) -> str:
    """Lists, per query level, the decision, its cost, and the cheapest alternatives."""
    return "\n".join(_level_lines(plan.root, plan.root.table, ""))


def _level_lines(level: LevelPlan, title: str, indent: str) -> Iterator[str]:
    yield f"{indent}{title}: {_verdict(level)}"
    for join in level.joins:
        kind = "child first" if join.flipped else "parent first"
        fixed = "" if join.flippable else " (fixed)"
        yield f"{indent}  {join.op} {join.name}: {kind}{fixed}"
    cheapest = sorted(level.attempts, key=lambda attempt: (not attempt.cost < float("inf"), attempt.cost))
    for attempt in cheapest[:SHOWN_ATTEMPTS]:
        mark = "*" if attempt is level.best else " "
        yield f"{indent}  {mark} {_letters(attempt, level)}  cost {attempt.cost:,.2f}"
    if len(cheapest) > SHOWN_ATTEMPTS:
        yield f"{indent}    and {len(cheapest) - SHOWN_ATTEMPTS} more expensive patterns"
    for alias, related in level.related.items():
        yield from _level_lines(related, f"related {alias} ({related.table})", indent + "  ")


def _verdict(level: LevelPlan) -> str:
    if level.skipped:
        return f"{level.skipped} undecided EXISTS are too many to try; left as they are"
    if level.best is None:
        return "nothing to decide" if not level.attempts else "no pattern has a finite cost; left as it is"
    return f"pattern {_letters(level.best, level)} of {len(level.attempts)}, cost {level.best.cost:,.2f}"


def _letters(attempt: Attempt, level: LevelPlan) -> str:
    """One letter per join the planner could choose: F flipped, s semi."""
    undecided = sum(join.flippable for join in level.joins)
    return "".join("F" if attempt.pattern >> bit & 1 else "s" for bit in range(undecided))


def as_mermaid(plan: QueryPlan) -> str:
    """A flow chart: solid arrows are EXISTS checks in the direction they are evaluated, dotted ones relationships."""
    chart = _Chart()
    chart.add(plan.query)
    return "\n".join(["flowchart TD", *chart.lines])


@dataclass(slots=True)
class _Chart:
    """Lines of a chart under construction; every query level gets the next number."""

    # The chart without its first line; `add` appends.
    lines: list[str] = field(default_factory=list)
    # Query levels so far.
    count: int = 0

    def add(self, query: Query) -> str:
        node = f"q{self.count}"
        self.count += 1
        limit = "" if query.limit is None else f"<br/>limit {query.limit}"
        self.lines.append(f'  {node}["{_escaped(query.table)}{limit}"]')
        for condition in exists_conditions(query.where):
            self._exists(node, condition)
        for related in query.related:
            child = self.add(related.subquery)
            self.lines.append(f'  {node} -. "{_escaped(related.alias)}" .-> {child}')
        return node

    def _exists(self, parent: str, condition: Exists) -> None:
        child = self.add(condition.related.subquery)
        first, second = (child, parent) if condition.flip else (parent, child)
        self.lines.append(f'  {first} -- "{condition.op} {_escaped(condition.related.alias)}" --> {second}')


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "#quot;").replace("<", "&lt;").replace(">", "&gt;")
