"""Queries that are too large are refused before they are parsed."""

import json
import time
from typing import Any

import pytest

from protocol.sync.ast_json import AstError
from protocol.sync.ast_limits import QueryLimits, check_size
from protocol.sync.errors import SyncError
from protocol.sync.messages import ChangeDesiredQueries, decode

LIMITS = QueryLimits(objects=100, values=1000, characters=2000)


def compare(value: Any, op: str = "=") -> dict[str, Any]:
    return {
        "type": "simple",
        "op": op,
        "left": {"type": "column", "name": "id"},
        "right": {"type": "literal", "value": value},
    }


def issues(where: dict[str, Any]) -> dict[str, Any]:
    return {"table": "issue", "where": where}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (issues({"type": "or", "conditions": [compare(n) for n in range(40)]}), "100 objects"),
        (issues(compare(list(range(1001)), "IN")), "1000 values"),
        (issues(compare("x" * 2001)), "2000 characters"),
        ({"table": "issue", "orderBy": [["id", "asc"]] * 500}, "1000 values"),
        ({"table": "issue", "start": {"row": {f"c{n}": 1 for n in range(1001)}, "exclusive": True}}, "1000 values"),
    ],
)
def test_a_query_with_too_much_of_anything_is_refused(query: Any, reason: str) -> None:
    with pytest.raises(AstError, match=reason):
        check_size(query, LIMITS)


def test_a_query_within_the_limits_passes() -> None:
    check_size(issues({"type": "or", "conditions": [compare(n) for n in range(30)]}), LIMITS)
    check_size(issues(compare(list(range(900)), "IN")), LIMITS)


def test_a_message_with_a_query_that_is_too_large_is_invalid() -> None:
    patch = [{"op": "put", "hash": "h", "ast": issues(compare(list(range(1001)), "IN"))}]
    text = json.dumps(["changeDesiredQueries", {"desiredQueriesPatch": patch}])
    with pytest.raises(SyncError, match="too large"):
        decode(text, LIMITS)
    assert isinstance(decode(text), ChangeDesiredQueries)


def test_a_huge_query_is_refused_in_no_time() -> None:
    query = issues(compare(list(range(1_000_000)), "IN"))
    began = time.perf_counter()
    with pytest.raises(AstError):
        check_size(query, LIMITS)
    assert time.perf_counter() - began < 0.5
