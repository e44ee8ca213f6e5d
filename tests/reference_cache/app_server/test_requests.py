"""What caches send is checked once, and what is wrong is named."""

from typing import Any

import pytest

from reference_cache.app_server.requests import BadRequest, parse_push, parse_schema, parse_transform

MUTATION = {"type": "custom", "id": 1, "clientID": "c", "name": "m", "args": [], "timestamp": 5}
PUSH = {"clientGroupID": "g", "mutations": [MUTATION], "pushVersion": 1, "timestamp": 5, "requestID": "r"}


def test_a_transform_request_gives_its_queries() -> None:
    (query,) = parse_transform(["transform", [{"id": "h", "name": "n", "args": [1]}]])
    assert (query.id, query.name, query.args) == ("h", "n", [1])
    assert parse_transform(["transform", []]) == []


def test_unknown_fields_are_accepted() -> None:
    assert parse_push({**PUSH, "traceparent": "00-1"}).mutations[0].wire_id == {"clientID": "c", "id": 1}


@pytest.mark.parametrize("value", [None, [], ["transform"], ["other", []], ["transform", [{"id": 1}]], {"a": 1}])
def test_what_is_no_transform_request_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest):
        parse_transform(value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (None, "valid dictionary"),
        ({**PUSH, "clientGroupID": 1}, "clientGroupID"),
        ({**PUSH, "mutations": [{**MUTATION, "id": "1"}]}, "mutations.0.id"),
        ({**PUSH, "mutations": [{**MUTATION, "type": "crud"}]}, "mutations.0.type"),
    ],
)
def test_what_is_no_push_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(BadRequest, match=place):
        parse_push(value)


@pytest.mark.parametrize("query", [{}, {"schema": "zero_0"}, {"appID": "zero"}, {"schema": 'a"b', "appID": "zero"}])
def test_the_schema_must_be_named(query: dict[str, str]) -> None:
    assert parse_schema({"schema": "zero_0", "appID": "zero"}) == "zero_0"
    with pytest.raises(BadRequest, match="query string"):
        parse_schema(query)
