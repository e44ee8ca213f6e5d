"""Queries written in Python give the AST, format and id that the official builder gives the same queries."""

from typing import Any

import pytest

from protocol.sync.ast_json import parse, to_json
from protocol.sync.js_json import stringify
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.query.expression import and_, cmp, cmp_lit, exists, not_, or_
from reference_cache.zql.query.query_id import named_query_id, query_id
from tests.reference_cache.zql.official import NAMED, QUERIES, SCHEMA

table = Queries(SCHEMA).table
issue, user = table("issue"), table("user")

WRITTEN: dict[str, QueryBuilder] = {
    "all": issue,
    "equal": issue.where("open", True),
    "equal_null": issue.where("ownerId", None),
    "named_operator": issue.where("priority", ">=", 3),
    "is_null": issue.where("ownerId", "IS", None),
    "in_list": issue.where("priority", "IN", [1, 2.5, 3]),
    "empty_list": issue.where("priority", "NOT IN", []),
    "two_wheres": issue.where("open", True).where("priority", "<", 4),
    "three_wheres": issue.where("open", True).where("priority", "<", 4).where("title", "LIKE", "a%"),
    "unicode": issue.where("title", "ILIKE", '%日本😀"\\\\n%'),
    "odd_numbers": issue.where("priority", "IN", [1e21, 1e-7, -0.0, 0.1, 123456789012345680000.0]),
    "or_of_comparisons": issue.where(or_(cmp("open", True), cmp("priority", ">", 2))),
    "and_in_or": issue.where(or_(and_(cmp("open", True), cmp("priority", 1)), cmp("title", "x"))),
    "or_in_and_twice": issue.where(or_(cmp("open", True), cmp("open", False))).where(
        or_(cmp("priority", 1), cmp("priority", 2))
    ),
    "nested_same_kind": issue.where(and_(cmp("open", True), and_(cmp("priority", 1), cmp("title", "x")))),
    "nested_ors_merge": issue.where(or_(cmp("priority", 1), or_(cmp("priority", 2), cmp("priority", 3)))),
    "single_member": issue.where(or_(cmp("open", True))),
    "empty_or": issue.where(or_()),
    "empty_and": issue.where(and_()),
    "and_with_false": issue.where("open", True).where(or_()),
    "or_with_true": issue.where(or_(cmp("open", True), and_())),
    "and_with_true": issue.where(and_(cmp("open", True), and_(), cmp("priority", 1))),
    "undefined_members": issue.where(or_(None, cmp("open", True), None, cmp("priority", 1))),
    "not_comparison": issue.where(not_(cmp("priority", "<", 3))),
    "not_group": issue.where(not_(and_(cmp("open", True), or_(cmp("priority", "IN", [1]), cmp("title", "LIKE", "a"))))),
    "not_not": issue.where(not_(not_(cmp("title", "ILIKE", "x")))),
    "not_exists": issue.where(not_(exists("comments"))),
    "not_exists_flipped": issue.where(not_(exists("comments", lambda q: q, flip=True, scalar=True))),
    "literal_left": issue.where(cmp_lit(1, "=", 1)),
    "exists": issue.where_exists("comments"),
    "exists_narrowed": issue.where_exists(
        "comments", lambda q: q.where("body", "LIKE", "%x%").where("authorId", "IS NOT", None)
    ),
    "exists_flip_true": issue.where_exists("comments", lambda q: q.where("at", 5), flip=True),
    "exists_flip_false": issue.where_exists("comments", flip=False),
    "exists_scalar": issue.where_exists("owner", lambda q: q.where("id", "u1"), scalar=True),
    "exists_compound": issue.where_exists("milestone", lambda q: q.where("title", "m")),
    "exists_junction": issue.where_exists("labels"),
    "exists_junction_options": issue.where_exists("labels", lambda q: q.where("name", "bug"), flip=True, scalar=True),
    "exists_nested": user.where_exists(
        "issues", lambda q: q.where_exists("comments", lambda c: c.where_exists("author"))
    ),
    "exists_twice": issue.where_exists("comments").where_exists("comments", lambda q: q.where("at", 1)),
    "exists_or": issue.where(
        or_(cmp("open", True), exists("labels", lambda q: q.where("name", "IN", ["a", "b"])), exists("owner"))
    ),
    "exists_and_groups": issue.where(
        or_(
            and_(exists("comments"), cmp("open", False)),
            not_(exists("owner")),
            and_(cmp("priority", 1), or_(cmp("title", "b"), exists("milestone"))),
        )
    ),
    "related_one": issue.related("owner"),
    "related_many": issue.related("comments"),
    "related_changed": issue.related("comments", lambda q: q.where("at", ">", 1).order_by("at", "desc").limit(3)),
    "related_junction": issue.related("labels"),
    "related_junction_narrowed": issue.related("labels", lambda q: q.where("name", "!=", "x")),
    "related_junction_one": issue.related("labels", lambda q: q.one()),
    "related_callback_one": issue.related("comments", lambda q: q.order_by("at").one()),
    "related_deep": user.related(
        "issues", lambda q: q.related("comments", lambda c: c.related("author", lambda a: a.related("manager")))
    ),
    "related_several": issue.related("owner").related("comments").related("labels").related("milestone"),
    "related_same_alias": issue.related("comments", lambda q: q.limit(1)).related(
        "comments", lambda q: q.where("at", 2)
    ),
    "related_with_exists": issue.related(
        "comments", lambda q: q.where_exists("author", lambda a: a.where("name", "Ann"))
    ),
    "ordered": issue.order_by("priority", "desc").order_by("title"),
    "started": issue.order_by("title").start({"id": "i1", "title": "x"}),
    "started_inclusive": issue.order_by("title").start({"title": "x", "id": "i1"}, inclusive=True),
    "limited": issue.limit(10),
    "limit_zero": issue.limit(0),
    "limit_replaced": issue.limit(10).limit(5),
    "one": issue.where("id", "i1").one(),
    "everything": issue.where("open", True)
    .where_exists("labels", lambda q: q.where("name", "bug"))
    .related("comments", lambda q: q.order_by("at", "desc").limit(2).related("author"))
    .related("owner")
    .order_by("priority", "desc")
    .start({"priority": 3, "id": "i7"})
    .limit(20),
    "permissions": Queries(SCHEMA, "permissions")
    .table("issue")
    .where_exists("owner", lambda q: q.where("id", "u1"))
    .related("labels"),
}


def sorted_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(item) for item in value] if isinstance(value, list) else value


def test_every_official_query_is_written_here() -> None:
    assert WRITTEN.keys() == QUERIES.keys()


@pytest.mark.parametrize("name", QUERIES)
def test_ast_and_format_equal_the_official_builders(name: str) -> None:
    assert WRITTEN[name].ast == parse(QUERIES[name]["ast"])
    assert stringify(sorted_keys(to_json(WRITTEN[name].ast))) == stringify(sorted_keys(QUERIES[name]["ast"]))
    assert WRITTEN[name].format.to_json() == QUERIES[name]["format"]


@pytest.mark.parametrize("name", QUERIES)
def test_query_id_equals_the_official_hash(name: str) -> None:
    assert query_id(WRITTEN[name].ast) == QUERIES[name]["hash"]
    assert query_id(parse(QUERIES[name]["ast"])) == QUERIES[name]["hash"]


@pytest.mark.parametrize("case", NAMED, ids=lambda case: str(case["name"]))
def test_named_query_id_equals_the_official_hash(case: dict[str, object]) -> None:
    assert named_query_id(case["name"], case["args"]) == case["hash"]  # type: ignore[arg-type]
