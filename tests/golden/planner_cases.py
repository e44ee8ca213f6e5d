"""The planner part of a golden corpus: `planner.jsonl`, with the cost model each case defines."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from protocol.sync.ast import And, Column, Condition, Exists, Literal, Or, Ordering, Query, Simple
from protocol.sync.ast_json import parse, to_json
from reference_cache.zql.planner.cost import Constraint, TableCost, without_subqueries
from reference_cache.zql.planner.planner import plan
from tests.golden.corpus_files import read_lines

DEFAULT_FANOUT = 3
LISTED = {"!=": 0.9, "IS NOT": 0.9, "NOT IN": 0.9}


class DeclaredModel:
    """The cost model written out in a case: row counts, distinct values, sorted columns and fan-outs per table."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self._tables = tables

    def __call__(
        self, table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None
    ) -> TableCost:
        declared = self._tables[table]
        kept = None if filters is None else without_subqueries(filters)
        rows = declared["rows"] * (1 if kept is None else selectivity(kept, declared["ndv"]))
        for column in constraint or ():
            rows *= 1 / declared["ndv"][column]
        presorted = bool(constraint) or (bool(ordering) and ordering[0][0] in declared["sorted"])
        startup = 0 if presorted or rows <= 1 else rows * math.log2(rows) / 10
        return TableCost(rows, startup, lambda columns: fanout(declared["fanout"], columns))


def fanout(declared: dict[str, float], columns: Sequence[str]) -> float:
    return math.prod(declared.get(column, DEFAULT_FANOUT) for column in columns)


def selectivity(condition: Condition, ndv: dict[str, float]) -> float:
    """The share of rows a condition lets through, by the corpus's formula."""
    if isinstance(condition, And | Or):
        shares = [selectivity(member, ndv) for member in condition.conditions]
        return math.prod(shares) if isinstance(condition, And) else 1 - math.prod(1 - share for share in shares)
    assert isinstance(condition, Simple)
    if not isinstance(condition.left, Column):
        return 1
    if condition.op in ("=", "IS"):
        return 1 / ndv[condition.left.name]
    if condition.op == "IN":
        assert isinstance(condition.right, Literal)
        assert isinstance(condition.right.value, tuple)
        return min(1, len(condition.right.value) / ndv[condition.left.name])
    return LISTED.get(condition.op, 0.25)


def flips(query: Query) -> Iterator[bool | None]:
    """Every EXISTS's flip: where before related, a condition before its subquery."""
    if query.where is not None:
        yield from condition_flips(query.where)
    for related in query.related:
        yield from flips(related.subquery)


def condition_flips(condition: Condition) -> Iterator[bool | None]:
    if isinstance(condition, Exists):
        yield condition.flip
        yield from flips(condition.related.subquery)
    elif isinstance(condition, And | Or):
        for member in condition.conditions:
            yield from condition_flips(member)


def run(corpus: Path) -> tuple[int, list[str]]:
    """How many planner cases pass, and what is wrong with the others."""
    passed, failures = 0, []
    for case in read_lines(corpus, "planner.jsonl"):
        try:
            failure = judge(case)
        except Exception as error:
            failure = f"{case['id']}: {error!r}"
        if failure is None:
            passed += 1
        else:
            failures.append(failure)
    return passed, failures


def judge(case: dict[str, Any]) -> str | None:
    """What is wrong with our plan of a case; None if nothing is."""
    planned = plan(parse(case["ast"]), DeclaredModel(case["model"]["tables"]))
    if to_json(planned) == case["planned"] and list(flips(planned)) == case["flips"]:
        return None
    return f"{case['id']}: flips {list(flips(planned))}, expected {case['flips']}"
