import json
from typing import Any

import pytest

from protocol.sync.ast import And, Exists, Literal, Simple, Static
from protocol.sync.ast_json import MAX_NESTING, AstError, parse, parse_condition, to_json

OWNER: dict[str, Any] = {
    "correlation": {"parentField": ["ownerId"], "childField": ["id"]},
    "subquery": {"table": "user", "alias": "owner"},
}
OPEN: dict[str, Any] = {
    "type": "simple",
    "op": "=",
    "left": {"type": "column", "name": "open"},
    "right": {"type": "literal", "value": True},
}


def comparison(op: str, value: object) -> dict[str, Any]:
    return {**OPEN, "op": op, "right": {"type": "literal", "value": value}}


def exists(related: object = OWNER, **more: object) -> dict[str, Any]:
    return {"type": "correlatedSubquery", "op": "EXISTS", "related": related, **more}


def where(condition: object) -> dict[str, Any]:
    return {"table": "issue", "where": condition}


ROUND_TRIPS = {
    "only a table": {"table": "issue"},
    "every key": {
        "schema": "public",
        "table": "issue",
        "alias": "a",
        "where": OPEN,
        "related": [{**OWNER, "hidden": True, "system": "permissions"}],
        "start": {"row": {"id": "i1", "meta": {"a": [1]}, "n": None}, "exclusive": False},
        "limit": 0,
        "orderBy": [["modified", "desc"], ["id", "asc"]],
    },
    "keys in another order": {"orderBy": [["id", "asc"]], "limit": 1, "table": "issue"},
    "empty lists written out": {"table": "issue", "related": [], "orderBy": []},
    "operands in another order": where(
        {"right": {"value": 1, "type": "literal"}, "op": "<", "left": OPEN["left"], "type": "simple"}
    ),
    "exists with hints": where(exists(scalar=True, flip=False)),
    "static parameters": where({**OPEN, "right": {"type": "static", "anchor": "authData", "field": ["user", "id"]}}),
    "empty groups": where({"type": "or", "conditions": [{"type": "and", "conditions": []}]}),
    "null literal": where(comparison("IS", None)),
    "list literal": where(comparison("IN", ["a", 1, 1.5, False])),
    "empty list literal": where(comparison("NOT IN", [])),
}


@pytest.mark.parametrize("value", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
def test_what_was_read_is_written_back_key_for_key(value: dict[str, Any]) -> None:
    assert json.dumps(to_json(parse(value))) == json.dumps(value)


def test_unknown_keys_are_ignored() -> None:
    assert to_json(parse({"table": "issue", "colour": "red"})) == {"table": "issue"}


def test_parsed_parts_have_their_types() -> None:
    condition = parse_condition({"type": "and", "conditions": [exists(), comparison("IN", [1, 2])]})
    assert isinstance(condition, And)
    first, second = condition.conditions
    assert isinstance(first, Exists)
    assert first.related.alias == "owner"
    assert isinstance(second, Simple)
    assert second.right == Literal((1, 2))


def test_a_static_field_is_a_name_or_a_path() -> None:
    condition = parse_condition({**OPEN, "right": {"type": "static", "anchor": "authData", "field": "sub"}})
    assert isinstance(condition, Simple)
    assert condition.right == Static("authData", "sub")


def test_integers_beyond_the_safe_range_are_the_nearest_double() -> None:
    condition = parse_condition(comparison("=", 2**63))
    assert isinstance(condition, Simple)
    assert isinstance(condition.right, Literal)
    assert isinstance(condition.right.value, float)


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (None, "", "expected an object"),
        ([], "", "expected an object"),
        ({}, "", "'table' is missing"),
        ({"table": 1}, "table", "expected a string"),
        ({"table": "issue", "where": None}, "where", "expected an object"),
        (where({}), "where", "'type' is missing"),
        (where({"type": "xor"}), "where.type", "'xor' is not one of simple, and, or"),
        (where({"type": "and"}), "where", "'conditions' is missing"),
        (where({"type": "or", "conditions": [OPEN, OPEN, 3]}), "where.conditions[2]", "expected an object"),
        (
            where({"type": "and", "conditions": [OPEN, comparison("~", 1)]}),
            "where.conditions[1].op",
            "'~' is not one of",
        ),
        (where(comparison("=", {"a": 1})), "where.right.value", "a literal is a string"),
        (where(comparison("=", [1])), "where.right.value", "use IN for a list"),
        (where(comparison("IN", 1)), "where.right.value", "IN needs a list"),
        (where(comparison("IN", [1, None])), "where.right.value[1]", "list members are strings"),
        (where(comparison("IN", [[1]])), "where.right.value[0]", "list members are strings"),
        (where(comparison("LIKE", 5)), "where.right.value", "LIKE needs a string pattern"),
        (where(comparison("=", float("nan"))), "where.right.value", "not a number JSON can carry"),
        (where(comparison("=", 10**400)), "where.right.value", "not a number JSON can carry"),
        (where({**OPEN, "right": OPEN["left"]}), "where.right", "not a column"),
        (where({**OPEN, "left": {"type": "literal", "value": [1]}}), "where.left.value", "only be on the right"),
        (where({**OPEN, "left": {"type": "row"}}), "where.left.type", "'row' is not one of literal, column, static"),
        (
            where({**OPEN, "right": {"type": "static", "anchor": "me", "field": "x"}}),
            "where.right.anchor",
            "'me' is not",
        ),
        (where(exists(op="MAYBE")), "where.op", "'MAYBE' is not one of EXISTS, NOT EXISTS"),
        (where(exists(flip=1)), "where.flip", "expected true or false"),
        (where(exists({**OWNER, "system": "root"})), "where.related.system", "'root' is not one of"),
        (where(exists({**OWNER, "subquery": {"table": "user"}})), "where.related.subquery", "needs an 'alias'"),
        (
            {"table": "issue", "related": [OWNER, {**OWNER, "correlation": {"parentField": ["a"], "childField": []}}]},
            "related[1].correlation.childField",
            "at least one column",
        ),
        (
            {"table": "issue", "related": [{**OWNER, "correlation": {"parentField": ["a", "b"], "childField": ["c"]}}]},
            "related[0].correlation",
            "2 parent columns against 1 child",
        ),
        ({"table": "issue", "limit": -1}, "limit", "zero or more"),
        ({"table": "issue", "limit": 1.5}, "limit", "whole number"),
        ({"table": "issue", "limit": True}, "limit", "whole number"),
        ({"table": "issue", "limit": None}, "limit", "whole number"),
        ({"table": "issue", "limit": float("inf")}, "limit", "whole number"),
        ({"table": "issue", "orderBy": [["a", "up"]]}, "orderBy[0][1]", "'up' is not one of asc, desc"),
        ({"table": "issue", "orderBy": [["a"]]}, "orderBy[0]", "expected [column, direction]"),
        ({"table": "issue", "orderBy": "a"}, "orderBy", "expected a list"),
        ({"table": "issue", "start": {"row": {}}}, "start", "'exclusive' is missing"),
        ({"table": "issue", "start": {"row": [], "exclusive": True}}, "start.row", "expected an object"),
    ],
)
def test_an_error_names_the_path_and_the_reason(value: object, path: str, reason: str) -> None:
    with pytest.raises(AstError) as caught:
        parse(value)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert str(caught.value).startswith(path or "(query)")


def nested_groups(depth: int) -> dict[str, Any]:
    condition = OPEN
    for _ in range(depth):
        condition = {"type": "and", "conditions": [condition]}
    return where(condition)


def nested_related(depth: int) -> dict[str, Any]:
    query: dict[str, Any] = {"table": "user", "alias": "leaf"}
    for _ in range(depth):
        query = {"table": "user", "alias": "again", "related": [{**OWNER, "subquery": query}]}
    return query


def nested_exists(depth: int) -> dict[str, Any]:
    query: dict[str, Any] = {"table": "user", "alias": "leaf"}
    for _ in range(depth):
        query = {"table": "user", "alias": "again", "where": exists({**OWNER, "subquery": query})}
    return query


@pytest.mark.parametrize("nested", [nested_groups, nested_related, nested_exists])
def test_nesting_is_bounded_with_an_error_at_the_level_too_many(nested: Any) -> None:
    assert to_json(parse(nested(MAX_NESTING - 1))) == nested(MAX_NESTING - 1)
    for depth in (50, 400):
        with pytest.raises(AstError, match="nested more than"):
            parse(nested(depth))


def test_a_cyclic_query_is_refused_instead_of_followed_for_ever() -> None:
    query: dict[str, Any] = {"table": "user", "alias": "me"}
    query["related"] = [{**OWNER, "subquery": query}]
    with pytest.raises(AstError) as caught:
        parse(query)
    assert caught.value.path.startswith("related[0].subquery.related[0].subquery")


def test_values_too_deep_or_too_big_to_show_are_refused_in_few_words() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    for value in (deep, list(range(100_000)), "x" * 100_000):
        with pytest.raises(AstError) as caught:
            parse({"table": "issue", "orderBy": [value]} if value is not deep else {"table": deep})
        assert len(str(caught.value)) < 300
    with pytest.raises(AstError, match=r"^start.row.meta: nested more than"):
        parse({"table": "issue", "start": {"row": {"meta": deep}, "exclusive": True}})


def test_a_huge_list_is_read() -> None:
    values = list(range(200_000))
    condition = parse_condition(comparison("IN", values))
    assert isinstance(condition, Simple)
    assert condition.right == Literal(tuple(values))
