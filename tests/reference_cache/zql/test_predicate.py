from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.sync.ast import And, Column, Condition, Exists, Literal, Or, Simple, SimpleOp, Static
from protocol.sync.ast_json import parse_condition
from reference_cache.zql.like import LikePatternError
from reference_cache.zql.predicate import compile_predicate, evaluate, simplify, weaken
from reference_cache.zql.schema import table
from reference_cache.zql.values import IncomparableError
from tests.reference_cache.zql.typed_tables import THING, VALUES, rows

EXISTS = parse_condition(
    {
        "type": "correlatedSubquery",
        "op": "EXISTS",
        "related": {
            "correlation": {"parentField": ["id"], "childField": ["id"]},
            "subquery": {"table": "thing", "alias": "again"},
        },
    }
)
MANY = table("many", {"id": "string", "n": "number"})
ROW = ("k", "abc", 2, True, None, None)


def cmp(column: str, op: Any, value: Any) -> Simple:
    return Simple(op, Column(column), Literal(value))


def judge(condition: Condition | None, row: Any = ROW) -> bool:
    return compile_predicate(condition, THING)(row)


@st.composite
def comparisons(draw: st.DrawFn) -> Simple:
    column = draw(st.sampled_from(list(THING.columns)))
    kind = THING.columns[column].type
    ops = [op for op in get_args(SimpleOp) if "LIKE" not in op or kind == "string"]
    op = draw(st.sampled_from([op for op in ops if kind != "json" or op not in ("<", "<=", ">", ">=")]))
    any_value = st.one_of(*VALUES.values(), st.none())
    if "IN" in op:
        value: Any = tuple(draw(st.lists(st.one_of(*VALUES.values()), max_size=4)))
    elif op in ("=", "!=", "IS", "IS NOT"):
        value = draw(any_value)
    else:
        value = draw(VALUES[kind] | st.none())
    return Simple(op, Column(column), Literal(value))


conditions: st.SearchStrategy[Condition] = st.recursive(
    comparisons(),
    lambda inner: st.lists(inner, max_size=3).map(tuple).flatmap(lambda m: st.sampled_from([And(m), Or(m)])),
)


def naive(condition: Condition, row: Any) -> bool:
    if isinstance(condition, And):
        return all(naive(member, row) for member in condition.conditions)
    if isinstance(condition, Or):
        return any(naive(member, row) for member in condition.conditions)
    assert isinstance(condition, Simple)
    assert isinstance(condition.left, Column)
    assert isinstance(condition.right, Literal)
    return evaluate(condition.op, row[THING.index[condition.left.name]], condition.right.value)


@given(conditions, rows())
def test_a_compiled_condition_judges_as_the_definition_does(condition: Condition, row: Any) -> None:
    assert judge(condition, row) is naive(condition, row)


@given(conditions, rows())
def test_simplifying_never_changes_the_judgement(condition: Condition, row: Any) -> None:
    assert judge(simplify(condition), row) == judge(condition, row)


def test_no_condition_is_always_satisfied() -> None:
    assert judge(None)
    assert judge(And(()))
    assert not judge(Or(()))


def test_booleans_are_never_numbers() -> None:
    assert not judge(cmp("b", "=", 1))
    assert judge(cmp("b", "!=", 1))
    assert not judge(cmp("n", "IN", (True,)), ("k", "", 1, None, None, None))
    assert not judge(cmp("j", "=", 1), ("k", "", 1, None, True, None))


def test_null_satisfies_only_identity() -> None:
    for op in get_args(SimpleOp):
        value = (1,) if "IN" in op else "1" if "LIKE" in op else 1
        column = "s" if "LIKE" in op else "n"
        row = ("k", None, None, None, None, None)
        assert judge(cmp(column, op, value), row) == (op == "IS NOT"), op
    assert judge(cmp("n", "IS", None), ("k", None, None, None, None, None))
    assert not judge(cmp("n", "=", None), ("k", None, None, None, None, None))


def test_an_empty_list_contains_nothing() -> None:
    assert not judge(cmp("n", "IN", ()))
    assert judge(cmp("n", "NOT IN", ()))


def test_a_literal_on_the_left_makes_the_condition_constant() -> None:
    assert judge(Simple("<", Literal(1), Literal(2)))
    assert not judge(Simple("LIKE", Literal("abc"), Literal("b%")))


def test_text_in_literals_is_data_never_code() -> None:
    hostile = "'] or __import__('os').abort() or r['"
    assert judge(cmp("s", "=", hostile), ("k", hostile, None, None, None, None))
    assert not judge(cmp("s", "=", hostile))


def test_type_errors_surface_on_rows_that_have_a_value() -> None:
    ordered = compile_predicate(cmp("n", "<", "x"), THING)
    assert not ordered(("k", None, None, None, None, None))
    with pytest.raises(IncomparableError):
        ordered(ROW)
    with pytest.raises(IncomparableError):
        judge(cmp("n", "LIKE", "2"))
    with pytest.raises(LikePatternError):
        compile_predicate(cmp("s", "LIKE", "a\\"), THING)


def test_what_cannot_be_judged_by_a_row_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="EXISTS 'again'"):
        compile_predicate(EXISTS, THING)
    with pytest.raises(ValueError, match="must be bound"):
        compile_predicate(Simple("=", Column("s"), Static("authData", "sub")), THING)


def test_values_a_parameter_was_bound_to_are_taken_as_they_come() -> None:
    assert not judge(cmp("s", "=", {"a": 1}))
    assert judge(cmp("s", "LIKE", 12), ("k", "12", None, None, None, None))
    for column in ("s", "j"):
        with pytest.raises(ValueError, match="IN needs a list, got string: 'abc'"):
            judge(cmp(column, "IN", "abc"), ("k", "a", None, None, 1, None))


def test_huge_lists_and_wide_groups_compile_and_judge_quickly() -> None:
    assert judge(cmp("n", "IN", tuple(range(100_000))))
    assert judge(Or(tuple(cmp("n", "=", value) for value in range(5_000))))


def test_weakening_drops_exists_from_an_and_and_reports_it() -> None:
    assert weaken(And((cmp("n", "=", 1), EXISTS, cmp("s", "=", "a")))) == (
        And((cmp("n", "=", 1), cmp("s", "=", "a"))),
        True,
    )
    assert weaken(And((EXISTS, cmp("n", "=", 1)))) == (cmp("n", "=", 1), True)


def test_weakening_an_or_with_a_subquery_branch_leaves_nothing() -> None:
    assert weaken(Or((cmp("n", "=", 1), EXISTS))) == (None, True)
    both = And((Or((cmp("n", "=", 1), And((EXISTS,)))), cmp("s", "=", "a")))
    assert weaken(both)[1] is True


def test_a_condition_without_subqueries_is_kept_whole() -> None:
    assert weaken(None) == (None, False)
    assert weaken(cmp("n", "=", 1)) == (cmp("n", "=", 1), False)
    assert weaken(Or((cmp("n", "=", 1), cmp("n", "=", 2)))) == (Or((cmp("n", "=", 1), cmp("n", "=", 2))), False)


def with_exists(condition: Condition, value: bool) -> Condition:
    if isinstance(condition, Exists):
        return And(()) if value else Or(())
    if isinstance(condition, And | Or):
        return type(condition)(tuple(with_exists(member, value) for member in condition.conditions))
    return condition


@given(
    st.recursive(
        comparisons() | st.just(EXISTS),
        lambda inner: st.lists(inner, max_size=3).map(tuple).flatmap(lambda m: st.sampled_from([And(m), Or(m)])),
    ),
    rows(),
    st.booleans(),
)
def test_the_weaker_condition_holds_whenever_the_original_does(condition: Condition, row: Any, holds: bool) -> None:
    weaker, dropped = weaken(condition)
    original = judge(with_exists(condition, holds), row)
    if original:
        assert judge(weaker, row)
    if not dropped:
        assert judge(weaker, row) == original


@pytest.mark.parametrize("group", [And, Or])
def test_a_group_of_many_members_is_judged_like_a_small_one(group: type[And | Or]) -> None:
    op: SimpleOp = "!=" if group is And else "="
    judge = compile_predicate(group(tuple(Simple(op, Column("n"), Literal(number)) for number in range(1000))), MANY)
    for number in (0, 63, 64, 999):
        assert judge((str(number), number)) == (group is Or)
    assert judge(("x", 1000)) == (group is And)
