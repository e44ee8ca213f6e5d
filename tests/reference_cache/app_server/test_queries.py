"""Named queries become ASTs under the server's names, and errors become errors of their query alone."""

from typing import Any

import pytest
from pydantic import BaseModel

from protocol.sync.app_server import ErroredQuery, QueryResponse, TransformFailed, parse_query_answer
from protocol.sync.ast_json import to_json
from reference_cache.app_server import ApplicationError, DeclarationError, NamedQueries
from reference_cache.app_server.requests import QueryRequest
from reference_cache.app_server.transform import transform_queries
from reference_cache.zql.query.builder import Queries, QueryBuilder
from tests.support.apps.schema import TRACKER

q = Queries(TRACKER)


class ByOwner(BaseModel):
    owner: str


@pytest.fixture
def queries() -> NamedQueries:
    made = NamedQueries(TRACKER)

    @made.define("byOwner")
    def by_owner(args: ByOwner) -> QueryBuilder:
        return q.table("issues").where("owner", args.owner)

    @made.define("mine")
    async def mine(ctx: str | None) -> QueryBuilder:
        if ctx is None:
            raise ApplicationError("log in first", {"code": 7})
        return q.table("issues").where("owner", ctx)

    @made.define("broken")
    def broken() -> QueryBuilder:
        raise ZeroDivisionError("by zero")

    @made.define("wrong")
    def wrong() -> Any:
        return "issues"

    return made


def asked(name: str, *args: Any) -> QueryRequest:
    return QueryRequest(id=f"id-{name}", name=name, args=list(args))


async def test_a_query_is_mapped_to_the_servers_names(queries: NamedQueries) -> None:
    found = to_json(await queries.resolve("byOwner", {"owner": "u1"}))
    assert found["table"] == "issues"
    assert found["where"]["left"] == {"type": "column", "name": "owner_id"}


async def test_a_query_knows_for_whom_it_is(queries: NamedQueries) -> None:
    found = to_json(await queries.resolve("mine", None, "ann"))
    assert found["where"]["right"]["value"] == "ann"


async def test_each_query_of_a_request_is_answered_on_its_own(
    queries: NamedQueries, caplog: pytest.LogCaptureFixture
) -> None:
    request = [asked("byOwner", {"owner": "u1"}), asked("byOwner", {}), asked("nobody"), asked("mine"), asked("broken")]
    answer = parse_query_answer(await transform_queries(queries, request, None))
    assert isinstance(answer, QueryResponse)
    good, *bad = answer.queries
    assert good.id == "id-byOwner"
    *refused, fault = bad
    told = [(each.error, each.message, each.details) for each in refused if isinstance(each, ErroredQuery)]
    assert told == [
        (
            "parse",
            "invalid arguments for byOwner: owner: Field required",
            [{"path": "owner", "message": "Field required"}],
        ),
        ("app", "Query not found: nobody", None),
        ("app", "log in first", {"code": 7}),
    ]
    assert isinstance(fault, ErroredQuery)
    assert (fault.error, "by zero" in str(fault.message), "error id" in str(fault.message)) == ("app", False, True)
    assert "by zero" in caplog.text


async def test_a_handler_that_returns_no_query_fails_the_request(
    queries: NamedQueries, caplog: pytest.LogCaptureFixture
) -> None:
    answer = parse_query_answer(await transform_queries(queries, [asked("wrong")], None))
    assert isinstance(answer, TransformFailed)
    assert (answer.reason, answer.query_ids) == ("internal", ["id-wrong"])
    assert "error id" in answer.message
    assert "instead of a QueryBuilder" in caplog.text


async def test_details_that_json_cannot_say_do_not_hide_the_refusal() -> None:
    made = NamedQueries(TRACKER)

    @made.define("q")
    def refuse() -> QueryBuilder:
        raise ApplicationError("no", {1, 2})

    answer = await transform_queries(made, [asked("q")], None)
    assert answer["queries"][0]["details"] == "{1, 2}"


def test_names_are_listed_in_the_order_of_their_declaration(queries: NamedQueries) -> None:
    assert queries.names == ("byOwner", "mine", "broken", "wrong")
    with pytest.raises(DeclarationError, match="declared twice"):
        queries.define("mine")(lambda: None)
