from collections.abc import Callable
from typing import Any

import pytest

from protocol.sync.ast import And, Column, Literal, Or, Query, Simple, exists_conditions
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.query.expression import cmp, exists, not_, or_
from reference_cache.zql.query.scalar import ALWAYS_FALSE, ALWAYS_TRUE, Companion, is_scalar, resolve_scalars
from reference_cache.zql.schema import Schema, hop, schema, table

SCHEMA: Schema = schema(
    [
        table("user", {"id": "string", "email": "string?", "teamId": "number?"}, unique=[["email"]]),
        table("issue", {"id": "string", "ownerId": "string?", "a": "number?", "b": "number?"}),
        table("team", {"id": "number", "a": "number", "b": "number?"}),
    ],
    {
        "issue": {"owner": hop("ownerId", "user", "id", "one"), "team": hop(["a", "b"], "team", ["a", "b"])},
        "user": {"team": hop("teamId", "team", "id", "one")},
    },
)
issue = Queries(SCHEMA).table("issue")
ANN = {"id": "u1", "email": "ann@x", "teamId": None}


def resolve(query: QueryBuilder, rows: dict[str, dict[str, Any] | None]) -> tuple[Query, tuple[Companion, ...]]:
    return resolve_scalars(query.ast, SCHEMA, lambda asked: rows[asked.table])


def by_email(q: QueryBuilder) -> QueryBuilder:
    return q.where("email", "ann@x")


def test_exists_becomes_equality_with_the_rows_value() -> None:
    query, companions = resolve(issue.where_exists("owner", by_email, scalar=True), {"user": ANN})
    assert query.where == Simple("=", Column("ownerId"), Literal("u1"))
    assert [(c.query.table, c.columns, c.values) for c in companions] == [("user", ("id",), ("u1",))]


def test_not_exists_becomes_is_not_so_that_null_parents_match() -> None:
    query, _ = resolve(issue.where(not_(exists("owner", by_email, scalar=True))), {"user": ANN})
    assert query.where == Simple("IS NOT", Column("ownerId"), Literal("u1"))


@pytest.mark.parametrize("row", [None, {**ANN, "id": None}])
def test_no_row_and_null_give_constants(row: dict[str, Any] | None) -> None:
    positive, companions = resolve(issue.where_exists("owner", by_email, scalar=True), {"user": row})
    negative, _ = resolve(issue.where(not_(exists("owner", by_email, scalar=True))), {"user": row})
    assert positive.where == ALWAYS_FALSE
    assert negative.where == ALWAYS_TRUE
    assert companions[0].values == (None if row is None else (None,))


def test_all_correlated_columns_take_part() -> None:
    def team(q: QueryBuilder) -> QueryBuilder:
        return q.where("id", 1)

    rows: dict[str, dict[str, Any] | None] = {"team": {"id": 1, "a": 2, "b": 3}}
    positive, _ = resolve(issue.where_exists("team", team, scalar=True), rows)
    negative, _ = resolve(issue.where(not_(exists("team", team, scalar=True))), rows)
    assert positive.where == And((cmp("a", 2), cmp("b", 3)))
    assert negative.where == Or((cmp("a", "IS NOT", 2), cmp("b", "IS NOT", 3)))


def test_inner_subqueries_are_resolved_first() -> None:
    query = issue.where_exists(
        "owner",
        lambda q: q.where("id", "u1").where_exists("team", lambda t: t.where("id", 4), scalar=True),
        scalar=True,
    )
    resolved, companions = resolve(query, {"user": ANN, "team": {"id": 4, "a": 0, "b": 0}})
    assert resolved.where == cmp("ownerId", "u1")
    assert [companion.query.table for companion in companions] == ["team", "user"]
    assert companions[1].query.where == And((cmp("id", "u1"), cmp("teamId", 4)))


def test_groups_related_queries_and_plain_exists_are_searched_too() -> None:
    scalar = exists("owner", by_email, scalar=True)
    grouped, found = resolve(issue.where(or_(cmp("id", "i"), scalar)).related("owner"), {"user": ANN})
    assert grouped.where == Or((cmp("id", "i"), cmp("ownerId", "u1")))
    assert len(found) == 1
    team = exists("team", lambda t: t.where("id", 1), scalar=True)
    nested, _ = resolve(issue.related("owner", lambda q: q.where(team)), {"team": {"id": 1, "a": 0, "b": 0}})
    assert nested.related[0].subquery.where == cmp("teamId", 1)
    plain, _ = resolve(issue.where_exists("owner", lambda q: q.where(team)), {"team": {"id": 1, "a": 0, "b": 0}})
    (outer,) = exists_conditions(plain.where)
    assert outer.related.subquery.where == cmp("teamId", 1)


@pytest.mark.parametrize(
    ("change", "certain"),
    [
        (lambda q: q.where("id", "u1"), True),
        (lambda q: q.where("email", "x").where("teamId", 1), True),
        (lambda q: q.where("teamId", 1), False),
        (lambda q: q.where("id", "!=", "u1"), False),
        (lambda q: q.where("id", "IS", "u1"), False),
        (lambda q: q.where(or_(cmp("id", "u1"), cmp("id", "u2"))), False),
        (lambda q: q, False),
    ],
)
def test_only_a_fully_pinned_unique_key_is_certain(
    change: Callable[[QueryBuilder], QueryBuilder], certain: bool
) -> None:
    assert is_scalar(change(Queries(SCHEMA).table("user")).ast, SCHEMA) is certain


def test_what_is_not_certain_or_not_marked_stays_an_exists() -> None:
    uncertain = issue.where_exists("owner", lambda q: q.where("teamId", 1), scalar=True)
    unmarked = issue.where_exists("owner", by_email)
    assert resolve(uncertain, {}) == (uncertain.ast, ())
    assert resolve(unmarked, {}) == (unmarked.ast, ())
