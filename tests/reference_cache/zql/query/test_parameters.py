from typing import Any

import pytest

from protocol.sync.ast import Literal, Simple, exists_conditions
from protocol.sync.ast_json import parse
from reference_cache.zql.query.parameters import UnboundParameterError, bind


def static(field: Any, anchor: str = "authData") -> dict[str, Any]:
    right = {"type": "static", "anchor": anchor, "field": field}
    return {"type": "simple", "op": "=", "left": {"type": "column", "name": "ownerId"}, "right": right}


def bound(field: Any, parameters: dict[str, Any], anchor: str = "authData") -> Any:
    where = bind(parse({"table": "issue", "where": static(field, anchor)}), parameters).where
    assert isinstance(where, Simple)
    assert isinstance(where.right, Literal)
    return where.right.value


def test_a_field_is_looked_up_in_its_anchor() -> None:
    assert bound("sub", {"authData": {"sub": "u1"}}) == "u1"
    assert bound("id", {"preMutationRow": {"id": 7}}, "preMutationRow") == 7


def test_a_path_is_followed() -> None:
    assert bound(["user", "id"], {"authData": {"user": {"id": "u2"}}}) == "u2"


def test_lists_become_literals_for_in() -> None:
    assert bound("ids", {"authData": {"ids": ["a", "b"]}}) == ("a", "b")


@pytest.mark.parametrize(
    ("field", "parameters"),
    [
        ("sub", {}),
        ("sub", {"authData": {}}),
        (["user", "id"], {"authData": {"user": None}}),
        (["a", "b"], {"authData": {}}),
    ],
)
def test_whatever_is_missing_on_the_way_gives_null(field: Any, parameters: dict[str, Any]) -> None:
    assert bound(field, parameters) is None


def test_parameters_are_bound_at_every_level() -> None:
    correlation = {"parentField": ["id"], "childField": ["issueId"]}
    subquery = {"table": "comment", "alias": "c", "where": static("sub")}
    related = {"correlation": correlation, "subquery": subquery}
    exists = {"type": "correlatedSubquery", "op": "EXISTS", "related": related}
    query = parse({"table": "issue", "where": {"type": "or", "conditions": [exists]}, "related": [related]})
    result = bind(query, {"authData": {"sub": "u1"}})
    (inner,) = exists_conditions(result.where)
    for where in (inner.related.subquery.where, result.related[0].subquery.where):
        assert isinstance(where, Simple)
        assert where.right == Literal("u1")


def test_no_values_at_all_is_an_error_only_if_some_are_needed() -> None:
    assert bind(parse({"table": "issue"}), None) == parse({"table": "issue"})
    with pytest.raises(UnboundParameterError, match="authData 'sub'"):
        bind(parse({"table": "issue", "where": static("sub")}), None)
