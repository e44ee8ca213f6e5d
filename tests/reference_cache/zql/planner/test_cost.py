import math

from protocol.sync.ast import And, Or
from reference_cache.zql.planner.cost import any_match, divide, merge, round_up, smaller, without_subqueries
from tests.reference_cache.zql.test_predicate import EXISTS, cmp

A, B = cmp("n", "=", 1), cmp("n", "=", 2)


def test_division_follows_ieee() -> None:
    assert divide(1, 4) == 0.25
    assert divide(1, 0) == math.inf
    assert math.isnan(divide(0, 0))


def test_undefined_values_spread() -> None:
    assert math.isnan(smaller(1, math.nan))
    assert math.isnan(smaller(math.nan, 1))
    assert smaller(3, math.inf) == 3


def test_rounding_up_keeps_infinity() -> None:
    assert round_up(1.2) == 2
    assert round_up(math.inf) == math.inf
    assert math.isnan(round_up(math.nan))


def test_the_chance_of_any_match_grows_with_the_trials() -> None:
    assert any_match(0.5, 1) == 0.5
    assert any_match(0.5, 2) == 0.75
    assert any_match(0.25, 0) == 0
    assert any_match(1, 0) == 0
    assert math.isnan(any_match(1.5, 0.5))


def test_constraints_merge_in_order_without_repeats() -> None:
    assert merge(None, None) is None
    assert merge(("a",), None) == ("a",)
    assert merge(None, ("b",)) == ("b",)
    assert merge(("a", "b"), ("b", "c")) == ("a", "b", "c")


def test_groups_that_lose_all_members_vanish_and_single_members_are_unwrapped() -> None:
    assert without_subqueries(EXISTS) is None
    assert without_subqueries(Or((EXISTS, And((EXISTS,))))) is None
    assert without_subqueries(Or((A, EXISTS))) == A
    assert without_subqueries(And((A, EXISTS, B))) == And((A, B))


def test_groups_that_were_empty_stay() -> None:
    assert without_subqueries(Or(())) == Or(())
    assert without_subqueries(And((A, Or(())))) == And((A, Or(())))
