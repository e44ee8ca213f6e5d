from protocol.sync.ast import And, Or
from reference_cache.zql.planner.filters import without_subqueries
from tests.reference_cache.zql.test_predicate import EXISTS, cmp

A, B = cmp("n", "=", 1), cmp("n", "=", 2)


def test_groups_that_lose_all_members_vanish_and_single_members_are_unwrapped() -> None:
    assert without_subqueries(EXISTS) is None
    assert without_subqueries(Or((EXISTS, And((EXISTS,))))) is None
    assert without_subqueries(Or((A, EXISTS))) == A
    assert without_subqueries(And((A, EXISTS, B))) == And((A, B))


def test_groups_that_were_empty_stay() -> None:
    assert without_subqueries(Or(())) == Or(())
    assert without_subqueries(And((A, Or(())))) == And((A, Or(())))
