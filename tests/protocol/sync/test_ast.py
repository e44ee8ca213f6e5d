from dataclasses import replace

from protocol.sync.ast import And, Column, Exists, Literal, Or, Query, Simple, Start, exists_conditions, map_leaves
from protocol.sync.ast_json import parse

COMMENTS = {
    "correlation": {"parentField": ["id"], "childField": ["issueId"]},
    "subquery": {"table": "comment", "alias": "comments"},
}


def test_true_is_not_the_number_one() -> None:
    assert Literal(True) != Literal(1)
    assert Literal((True,)) != Literal((1,))
    assert Literal(1) == Literal(1.0)
    assert len({Literal(True), Literal(1), Literal(1.0), Literal("1")}) == 3


def test_cursors_are_compared_by_their_values() -> None:
    assert Start({"a": 1, "b": None}, True) == Start({"b": None, "a": 1}, True)
    assert Start({"a": 1}, True) != Start({"a": True}, True)
    assert hash(Start({"a": [1, {"x": 2}]}, False)) == hash(Start({"a": [1, {"x": 2}]}, False))


def test_equal_queries_are_one_dictionary_key_whatever_their_key_order() -> None:
    one = parse({"table": "issue", "limit": 1, "where": {"type": "and", "conditions": []}})
    other = parse({"where": {"conditions": [], "type": "and"}, "limit": 1, "table": "issue"})
    assert {one: "found"}[other] == "found"


def test_queries_are_rewritten_piecewise_without_touching_the_original() -> None:
    query = Query("issue", limit=3)
    assert replace(query, limit=None) == Query("issue")
    assert query.limit == 3


def test_exists_conditions_come_in_traversal_order_and_stay_on_their_level() -> None:
    query = parse(
        {
            "table": "issue",
            "where": {
                "type": "or",
                "conditions": [
                    {"type": "correlatedSubquery", "op": "EXISTS", "related": COMMENTS},
                    {
                        "type": "and",
                        "conditions": [{"type": "correlatedSubquery", "op": "NOT EXISTS", "related": COMMENTS}],
                    },
                ],
            },
        }
    )
    assert [each.op for each in exists_conditions(query.where)] == ["EXISTS", "NOT EXISTS"]


def test_mapping_leaves_keeps_the_groups() -> None:
    open_, closed = Simple("=", Column("open"), Literal(True)), Simple("=", Column("open"), Literal(False))

    def negate(leaf: Simple | Exists) -> Simple:
        assert isinstance(leaf, Simple)
        return replace(leaf, op="!=")

    mapped = map_leaves(And((open_, Or((closed,)))), negate)
    assert mapped == And((replace(open_, op="!="), Or((replace(closed, op="!="),))))
