"""Examples of what clients send, small and valid: the inputs are made from them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from reference_cache.zql.schema import ColumnType, Schema, TableSchema

_TABLES = (
    TableSchema(
        "issue",
        {
            "id": ColumnType("string"),
            "title": ColumnType("string", optional=True),
            "open": ColumnType("boolean", optional=True),
            "rank": ColumnType("number", optional=True),
            "note": ColumnType("json", optional=True),
        },
        ("id",),
    ),
    TableSchema("comment", {"id": ColumnType("string"), "issue": ColumnType("string")}, ("id",)),
)
SCHEMA = Schema({table.name: table for table in _TABLES})

_TITLE = {"type": "column", "name": "title"}
_COMMENTS = {
    "correlation": {"parentField": ["id"], "childField": ["issue"]},
    "subquery": {"table": "comment", "alias": "comments", "orderBy": [["id", "asc"]]},
}


def _simple(op: str, value: object, column: str = "title") -> dict[str, Any]:
    left = {"type": "column", "name": column}
    return {"type": "simple", "op": op, "left": left, "right": {"type": "literal", "value": value}}


_ASTS: tuple[dict[str, Any], ...] = (
    {"table": "issue"},
    {"table": "issue", "orderBy": [["rank", "desc"], ["id", "asc"]], "limit": 10},
    {"table": "issue", "where": _simple("LIKE", "%a_b%")},
    {"table": "issue", "where": _simple("IN", ["a", "b", "c"])},
    {
        "table": "issue",
        "where": {"type": "or", "conditions": [_simple("=", "x"), _simple("!=", "y"), _simple("IS", None)]},
    },
    {"table": "issue", "related": [_COMMENTS]},
    {"table": "issue", "where": {"type": "correlatedSubquery", "related": _COMMENTS, "op": "EXISTS"}},
    {"table": "issue", "start": {"row": {"id": "a", "rank": 1}, "exclusive": True}, "orderBy": [["rank", "asc"]]},
)
ASTS = tuple(map(json.dumps, _ASTS))

_MUTATION = {"type": "custom", "id": 1, "clientID": "c", "name": "issue.rename", "args": [{"id": "1"}], "timestamp": 1}
MESSAGES = tuple(
    json.dumps(message)
    for message in (
        ["ping", {}],
        ["updateAuth", {"auth": "token"}],
        ["deleteClients", {"clientIDs": ["a"]}],
        ["changeDesiredQueries", {"desiredQueriesPatch": [{"op": "put", "hash": "h1", "ast": _ASTS[2], "ttl": 1000}]}],
        [
            "changeDesiredQueries",
            {"desiredQueriesPatch": [{"op": "put", "hash": "h2", "name": "all", "args": [1, "a"]}]},
        ],
        ["changeDesiredQueries", {"desiredQueriesPatch": [{"op": "del", "hash": "h1"}, {"op": "clear"}]}],
        [
            "push",
            {
                "clientGroupID": "g",
                "mutations": [_MUTATION],
                "pushVersion": 1,
                "timestamp": 1,
                "requestID": "r",
            },
        ],
        ["ackMutationResponses", {"clientID": "c", "id": 3}],
        ["inspect", {"op": "queries", "id": "i", "clientID": "c"}],
        ["closeConnection", []],
    )
)


def _signed(claims: dict[str, object], header: dict[str, object]) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    text = b".".join(parts)
    mac = hmac.new(b"a secret of thirty-two characters", text, hashlib.sha256).digest()
    return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


_CLAIMS: tuple[dict[str, object], ...] = (
    {"sub": "u", "exp": 2e9},
    {"sub": "u", "exp": "soon"},
    {"sub": "u", "nbf": -1},
    {"sub": ["u"]},
)
_HEADERS: tuple[dict[str, object], ...] = (
    {"alg": "HS256", "typ": "JWT"},
    {"alg": "none"},
    {"alg": "HS256", "crit": ["exp"]},
)
TOKENS = tuple(_signed(claims, header) for claims in _CLAIMS for header in _HEADERS)
