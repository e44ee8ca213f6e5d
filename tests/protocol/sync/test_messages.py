"""What a client may say: every message reads back, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import values
from protocol.sync.ast_json import parse as parse_ast
from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.messages import (
    CloseConnection,
    CustomMutation,
    InitConnection,
    Inspect,
    InspectAnalyzeQuery,
    Push,
    PutQuery,
    decode,
    parse,
)

MUTATION = {"type": "custom", "id": 1, "clientID": "c", "name": "m", "args": [None, {"a": None}], "timestamp": 1.5}
PUSH = {"clientGroupID": "g", "mutations": [MUTATION], "pushVersion": 1, "timestamp": 2, "requestID": "r"}
QUERIES = [
    {"op": "put", "hash": "h1", "name": "all", "args": [1], "ttl": 300000},
    {"op": "put", "hash": "h2", "ast": {"table": "t", "limit": 1}},
    {"op": "del", "hash": "h3"},
    {"op": "clear"},
]
SCHEMA = {"tables": {"t": {"columns": {"id": {"type": "string"}}, "primaryKey": ["id"]}}}
LEGAL: list[list[Any]] = [
    ["initConnection", {"desiredQueriesPatch": []}],
    [
        "initConnection",
        {
            "desiredQueriesPatch": QUERIES,
            "clientSchema": SCHEMA,
            "deleted": {"clientIDs": ["c2"], "clientGroupIDs": []},
            "userPushURL": "u",
            "userPushHeaders": {"a": "b"},
            "userQueryURL": "u",
            "userQueryHeaders": {"a": "b"},
            "activeClients": ["c"],
            "traceparent": "00-1",
        },
    ],
    ["changeDesiredQueries", {"desiredQueriesPatch": QUERIES, "traceparent": "00-1"}],
    ["push", PUSH],
    ["push", {**PUSH, "schemaVersion": 1, "auth": "a", "traceparent": "00-1"}],
    ["ackMutationResponses", {"clientID": "c", "id": 3}],
    ["ping", {}],
    ["updateAuth", {"auth": ""}],
    ["deleteClients", {}],
    ["deleteClients", {"clientIDs": ["c"], "clientGroupIDs": ["g"]}],
    ["pull", {"clientGroupID": "g", "cookie": None, "requestID": "r"}],
    ["inspect", {"op": "queries", "id": "1", "clientID": "c"}],
    ["inspect", {"op": "metrics", "id": "1"}],
    ["inspect", {"op": "version", "id": "1"}],
    ["inspect", {"op": "authenticate", "id": "1", "value": "p"}],
    ["inspect", {"op": "analyze-query", "id": "1", "ast": {"table": "t"}, "options": {"joinPlans": True}}],
]


@pytest.mark.parametrize("wire", LEGAL, ids=lambda wire: wire[0])
def test_a_legal_message_keeps_everything_it_says(wire: list[Any]) -> None:
    message = decode(values.dumps(wire))
    body = message.model_dump(exclude_unset=True)
    assert message.tag == wire[0]
    assert (body["question"] if isinstance(message, Inspect) else body) == wire[1]


@pytest.mark.parametrize("wire", [each for each in LEGAL if each[1]], ids=lambda wire: wire[0])
def test_an_unknown_field_refuses_the_message(wire: list[Any]) -> None:
    with pytest.raises(SyncError, match="bogus") as refused:
        parse([wire[0], {**wire[1], "bogus": 1}])
    assert refused.value.kind is ErrorKind.INVALID_MESSAGE


@pytest.mark.parametrize(
    ("wire", "where"),
    [
        (["push", {**PUSH, "mutations": [{**MUTATION, "id": "1"}]}], r"push.mutations\[0\]"),
        (["push", {**PUSH, "mutations": [{**MUTATION, "id": True}]}], r"push.mutations\[0\]"),
        (["push", {**PUSH, "client_group_id": "g"}], "client_group_id"),
        (["push", {**PUSH, "auth": None}], "push.auth"),
        (["changeDesiredQueries", {"desiredQueriesPatch": [{"op": "put", "hash": "h", "ast": {}}]}], "ast: .*table"),
        (["changeDesiredQueries", {"desiredQueriesPatch": [{"op": "put"}]}], "hash"),
        (["initConnection", {"desiredQueriesPatch": [], "clientSchema": {"tables": {"t": {}}}}], "columns"),
        (["updateAuth", {}], "updateAuth.auth"),
        (["updateAuth", []], "updateAuth"),
        (["nope", {}], "unknown message 'nope'"),
        ([["ping"], {}], "unknown message"),
        (["ping", {}, {}], "an array of a tag and a body"),
        ("ping", "an array of a tag and a body"),
    ],
)
def test_a_wrong_message_is_refused_with_the_place(wire: object, where: str) -> None:
    with pytest.raises(SyncError, match=where):
        parse(wire)


def test_queries_are_parsed_and_named_ones_keep_their_arguments() -> None:
    message = parse(LEGAL[1])
    assert isinstance(message, InitConnection)
    named, ad_hoc = message.desired_queries_patch[:2]
    assert isinstance(named, PutQuery)
    assert isinstance(ad_hoc, PutQuery)
    assert (named.name, named.args, named.ast) == ("all", [1], None)
    assert ad_hoc.ast == parse_ast({"table": "t", "limit": 1})


def test_a_push_keeps_nulls_inside_arguments() -> None:
    message = parse(["push", PUSH])
    assert isinstance(message, Push)
    assert isinstance(message.mutations[0], CustomMutation)
    assert message.model_dump(exclude_none=True) == PUSH


def test_close_connection_takes_any_array() -> None:
    assert isinstance(parse(["closeConnection", [1, None]]), CloseConnection)


def test_an_inspection_may_carry_a_named_query() -> None:
    message = parse(["inspect", {"op": "analyze-query", "id": "1", "name": "all", "args": []}])
    assert isinstance(message, Inspect)
    assert isinstance(message.question, InspectAnalyzeQuery)
    assert message.question.name == "all"
