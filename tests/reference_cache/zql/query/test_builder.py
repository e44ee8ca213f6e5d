from collections.abc import Callable

import pytest

from protocol.sync.ast import Literal, Simple, Static
from reference_cache.zql.query.builder import BuilderError, Queries
from reference_cache.zql.query.expression import cmp, exists
from tests.reference_cache.zql.official import SCHEMA

table = Queries(SCHEMA).table
issue = table("issue")


def test_every_step_gives_a_new_query_and_leaves_the_old_one() -> None:
    open_issues = issue.where("open", True)
    assert issue.ast.where is None
    assert open_issues.limit(1).ast.limit == 1
    assert open_issues.ast.limit is None


def test_a_static_parameter_may_stand_for_a_value() -> None:
    where = issue.where("ownerId", Static("authData", "sub")).ast.where
    assert isinstance(where, Simple)
    assert where.right == Static("authData", "sub")


def test_a_list_becomes_an_immutable_literal() -> None:
    where = issue.where("priority", "IN", [1, 2]).ast.where
    assert isinstance(where, Simple)
    assert where.right == Literal((1, 2))


def test_a_cursor_may_be_a_row_tuple() -> None:
    start = table("label").start((3, "bug")).ast.start
    assert start is not None
    assert start.row == {"id": 3, "name": "bug"}


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: table("isue"), "unknown table 'isue'; did you mean 'issue'?"),
        (lambda: issue.where("opne", True), "unknown column 'opne'; did you mean 'open'?"),
        (lambda: issue.where("open", "yes"), "column 'open' holds boolean, but 'yes' is a string"),
        (lambda: issue.where("title", "LIKES", "x"), "'LIKES' is no operator"),
        (lambda: issue.where("title"), "needs a value"),  # type: ignore[call-overload]
        (lambda: issue.related("coments"), "unknown relationship 'coments'; did you mean 'comments'?"),
        (lambda: issue.related("zsubq_comments"), "may not begin with 'zsubq_'"),
        (lambda: issue.where_exists("label"), "did you mean 'labels'?"),
        (lambda: issue.where(exists("comments", lambda q: q.where("at", "x"))), "holds number"),
        (lambda: issue.where(cmp("priority", "<", "x")), "holds number"),
        (lambda: issue.order_by("titel"), "did you mean 'title'?"),
        (lambda: issue.order_by("meta"), "no order"),
        (lambda: issue.order_by("title", "up"), "'asc' or 'desc'"),  # type: ignore[arg-type]
        (lambda: issue.start({"idd": 1}), "did you mean 'id'?"),
        (lambda: issue.limit(-1), "zero or more"),
        (lambda: issue.limit(1.5), "whole number"),  # type: ignore[arg-type]
        (lambda: issue.limit(True), "whole number"),
        (lambda: issue.related("labels", lambda q: q.limit(1)), "limit is not possible beyond a junction"),
        (lambda: issue.related("labels", lambda q: q.order_by("name")), "order_by is not possible beyond a junction"),
        (lambda: issue.where_exists("labels", lambda q: q.limit(1)), "limit is not possible beyond a junction"),
    ],
)
def test_mistakes_are_reported_by_the_call_that_makes_them(build: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        build()
    assert reason in str(caught.value)


def test_builder_errors_have_a_stable_code() -> None:
    with pytest.raises(BuilderError) as caught:
        table("nope")
    assert caught.value.code == "bad-query"
