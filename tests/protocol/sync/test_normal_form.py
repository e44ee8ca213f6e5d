from typing import Any

from protocol.sync.ast import And, Column, Condition, Literal, Or, Query, Simple, Static
from protocol.sync.ast_json import parse, to_json
from protocol.sync.normal_form import normalize


def lit(value: Any, op: Any = "=") -> Simple:
    return Simple(op, Literal(value), Literal(value))


def normal(condition: Condition) -> Condition | None:
    return normalize(Query("t", where=condition)).where


def test_groups_of_one_kind_are_merged_and_sorted() -> None:
    assert normal(And((lit("c"), And((lit("b"), lit("a")))))) == And((lit("a"), lit("b"), lit("c")))


def test_single_members_are_unwrapped_and_empty_groups_vanish() -> None:
    assert normal(Or((And((lit("a"),)),))) == lit("a")
    assert normal(And((Or(()), And(())))) is None


def test_literals_sort_by_their_javascript_text() -> None:
    assert normal(Or((lit(10), lit(9), lit(None), lit(True)))) == Or((lit(10), lit(9), lit(None), lit(True)))


def test_operators_decide_between_equal_left_sides() -> None:
    assert normal(Or((lit("a", "IS"), lit("a", "<")))) == Or((lit("a", "<"), lit("a", "IS")))


def test_exists_sort_by_alias_operator_and_hints_between_comparisons_and_groups() -> None:
    def exists(alias: str, **more: Any) -> dict[str, Any]:
        related = {
            "correlation": {"parentField": ["a"], "childField": ["b"]},
            "subquery": {"table": "u", "alias": alias},
        }
        return {"type": "correlatedSubquery", "op": "EXISTS", "related": related, **more}

    simple = {
        "type": "simple",
        "op": "=",
        "left": {"type": "column", "name": "a"},
        "right": {"type": "literal", "value": 1},
    }
    members = [exists("b"), exists("a", flip=True), exists("a", flip=False), exists("a"), simple]
    written = to_json(normalize(parse({"table": "t", "where": {"type": "and", "conditions": members}})))
    ordered = [simple, exists("a"), exists("a", flip=False), exists("a", flip=True), exists("b")]
    assert written["where"]["conditions"] == ordered


def test_keys_take_one_order_and_relationships_sort_by_alias() -> None:
    def related(alias: str) -> dict[str, Any]:
        return {
            "system": "client",
            "subquery": {"alias": alias, "table": "u"},
            "correlation": {"childField": ["b"], "parentField": ["a"]},
        }

    written = to_json(normalize(parse({"limit": 1, "related": [related("y"), related("x")], "table": "t"})))
    assert list(written) == ["table", "related", "limit"]
    assert [each["subquery"]["alias"] for each in written["related"]] == ["x", "y"]
    assert list(written["related"][0]) == ["correlation", "subquery", "system"]
    assert list(written["related"][0]["correlation"]) == ["parentField", "childField"]


def test_an_empty_list_that_was_written_stays() -> None:
    assert to_json(normalize(parse({"related": [], "table": "t"}))) == {"table": "t", "related": []}


def test_normalizing_twice_changes_nothing() -> None:
    condition = Or((And((lit("b"), lit("a"))), lit("z"), Or((lit("y"), And((lit("x"), lit("w")))))))
    once = normalize(Query("t", where=condition))
    assert normalize(once) == once


def test_groups_sort_by_kind_then_member_by_member_shorter_first() -> None:
    a, b = lit("a"), lit("b")
    groups = (And((b, lit("c"))), And((a, b, lit("c"))), And((a, b)))
    assert normal(Or(groups)) == Or((And((a, b)), And((a, b, lit("c"))), And((b, lit("c")))))


def test_queries_with_unbound_parameters_have_a_normal_form_too() -> None:
    first, second = (Simple("=", Column("x"), Static("authData", field)) for field in ("a", "b"))
    assert normal(And((second, first))) == And((first, second))
