import math
from typing import Any

import pytest

from protocol.sync.ast import Column, Condition, Literal, Ordering, Query, Simple, exists_conditions
from protocol.sync.ast_json import parse, to_json
from reference_cache.zql.ordering import complete_query
from reference_cache.zql.planner.cost import Constraint, TableCost
from reference_cache.zql.planner.planner import MAX_FLIPPABLE_JOINS, explain, plan
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.query.expression import exists, not_, or_
from tests.reference_cache.zql.official import QUERIES, SCHEMA

issue = Queries(SCHEMA).table("issue")


class Sizes:
    """A cost model from table sizes: equality and constraints keep one row in `distinct`, at least one."""

    def __init__(self, distinct: int = 10, fanout: float = 3, **rows: float) -> None:
        self.rows, self.distinct, self.fanout = rows, distinct, fanout
        self.asked: list[tuple[str, Constraint | None]] = []

    def __call__(
        self, table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None
    ) -> TableCost:
        self.asked.append((table, constraint))
        rows = self.rows.get(table, 1000)
        if isinstance(filters, Simple) and isinstance(filters.left, Column) and isinstance(filters.right, Literal):
            rows /= self.distinct
        for _ in constraint or ():
            rows /= self.distinct
        return TableCost(rows if math.isnan(rows) else max(1, rows), 0, lambda columns: self.fanout)


def planned(query: QueryBuilder, model: Any) -> Query:
    return plan(complete_query(query.ast, SCHEMA), model)


def flips(query: Query) -> list[bool | None]:
    return [each.flip for each in exists_conditions(query.where)]


def test_the_cheaper_side_leads() -> None:
    query = issue.where_exists("owner", lambda q: q.where("name", "Ann"))
    assert flips(planned(query, Sizes(distinct=100, issue=100_000, user=100))) == [True]
    assert flips(planned(query, Sizes(distinct=100, issue=10, user=100_000))) == [False]


def test_a_limit_makes_leading_with_the_parent_cheap() -> None:
    query = issue.where_exists("comments")
    model = Sizes(issue=1_000, comment=5)
    assert flips(planned(query, model)) == [True]
    assert flips(planned(query.limit(1), model)) == [False]


def test_hand_set_flips_and_not_exists_are_kept() -> None:
    query = (
        issue.where_exists("owner", flip=False)
        .where_exists("comments", flip=True)
        .where(not_(exists("milestone", flip=True)))
    )
    for rows in (1, 1_000_000):
        assert flips(planned(query, Sizes(issue=rows))) == [False, True, False]


def test_every_exists_gets_a_decision_and_nothing_else_changes() -> None:
    for case in QUERIES.values():
        query = complete_query(parse(case["ast"]), SCHEMA)
        result = plan(query, Sizes())
        assert all(flip is not None for flip in flips(result))
        assert without_flips(to_json(result)) == without_flips(to_json(query))


def without_flips(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_flips(item) for key, item in value.items() if key != "flip"}
    return [without_flips(item) for item in value] if isinstance(value, list) else value


def test_related_queries_are_planned_on_their_own_with_their_join_columns_pinned() -> None:
    model = Sizes(issue=10, comment=100_000)
    query = issue.related("comments", lambda q: q.where_exists("author", lambda a: a.where("name", "Ann")))
    result = planned(query, model)
    assert flips(result.related[0].subquery) == [False]
    assert ("comment", ("issueId",)) in model.asked


def test_of_relationships_with_one_alias_the_last_is_planned() -> None:
    query = issue.related("comments", lambda q: q.related("author")).related(
        "comments", lambda q: q.where_exists("author")
    )
    first, last = planned(query, Sizes(comment=10**6, user=1)).related
    assert first.subquery == complete_query(query.ast, SCHEMA).related[0].subquery
    assert flips(last.subquery) == [True]


def test_the_first_of_equally_cheap_patterns_wins() -> None:
    def free(table: str, ordering: Ordering, filters: Condition | None, constraint: Constraint | None) -> TableCost:
        return TableCost(0, 0, lambda columns: 1)

    assert flips(planned(issue.where_exists("owner").where_exists("comments"), free)) == [False, False]


def test_too_many_undecided_joins_are_left_alone() -> None:
    query = issue
    for _ in range(MAX_FLIPPABLE_JOINS + 1):
        query = query.where_exists("comments")
    found = explain(complete_query(query.where_exists("owner", flip=True).ast, SCHEMA), Sizes(issue=10**6, comment=1))
    assert found.root.skipped == MAX_FLIPPABLE_JOINS + 1
    assert found.root.attempts == ()
    assert flips(found.query) == [False] * (MAX_FLIPPABLE_JOINS + 1) + [True]


def test_all_patterns_are_tried_up_to_the_bound() -> None:
    query = issue.where(or_(exists("owner"), exists("comments"), exists("milestone")))
    found = explain(complete_query(query.ast, SCHEMA), Sizes())
    assert [attempt.pattern for attempt in found.root.attempts] == list(range(8))
    assert found.root.best is min(found.root.attempts, key=lambda attempt: attempt.cost)


def test_flipping_inside_an_or_pays_for_every_branch() -> None:
    query = issue.where(or_(exists("owner"), exists("comments")))
    root = explain(complete_query(query.ast, SCHEMA), Sizes(issue=100, user=100, comment=100)).root
    semi, *_, both = root.attempts
    one = explain(complete_query(issue.where_exists("owner").ast, SCHEMA), Sizes(issue=100, user=100)).root.attempts
    assert semi.cost == one[0].cost
    assert both.cost == 2 * one[1].cost


@pytest.mark.parametrize("rows", [math.nan, math.inf])
def test_a_model_without_sensible_numbers_leaves_the_query_as_it_is(rows: float) -> None:
    assert flips(planned(issue.where_exists("owner"), Sizes(issue=rows, user=rows))) == [False]


def test_the_model_is_asked_each_question_once() -> None:
    model = Sizes()
    query = issue.where_exists("owner").where_exists("comments").where_exists("milestone")
    planned(query, model)
    assert len(model.asked) < 40
