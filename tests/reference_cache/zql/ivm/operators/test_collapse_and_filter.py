"""Filter stages, and what several branches' changes come down to."""

import pytest

from reference_cache.zql.ivm.change import Add, Change, Child, Edit, Node, Remove, add, edit, remove
from reference_cache.zql.ivm.operators.fan import AnyBranch, collapse
from reference_cache.zql.ivm.operators.filter import AllOf, Filter
from tests.support.zql.recorder import plain_change

NEW, OLD = ("a", 2), ("a", 1)
CHILD = Child(Node(NEW), "x", add(("c",)))
EDIT = edit(NEW, OLD)
ADD, REMOVE = add(NEW), remove(OLD)


@pytest.mark.parametrize(
    ("incoming", "emitted", "expected"),
    [
        (ADD, [], None),
        (ADD, [ADD], ADD),
        (ADD, [ADD, add(NEW)], ADD),
        (REMOVE, [REMOVE, remove(OLD)], REMOVE),
        (EDIT, [EDIT, ADD], EDIT),
        (EDIT, [REMOVE, EDIT], EDIT),
        (EDIT, [ADD, ADD], ADD),
        (EDIT, [REMOVE, REMOVE], REMOVE),
        (CHILD, [ADD, CHILD], CHILD),
        (CHILD, [REMOVE, CHILD], CHILD),
        (CHILD, [ADD], ADD),
        (CHILD, [REMOVE], REMOVE),
    ],
)
def test_several_changes_collapse_to_one(incoming: Change, emitted: list[Change], expected: Change | None) -> None:
    assert collapse(incoming, emitted) is expected


def test_lost_in_one_branch_and_gained_in_another_is_an_edit() -> None:
    found = collapse(EDIT, [REMOVE, ADD])
    assert isinstance(found, Edit)
    assert plain_change(found) == ("edit", NEW, OLD)


def test_a_child_change_cannot_both_add_and_remove() -> None:
    with pytest.raises(AssertionError, match="both"):
        collapse(CHILD, [ADD, REMOVE])


def above(bound: int) -> Filter:
    return Filter(lambda row: row[1] > bound)


def test_all_of_hands_on_what_each_stage_left() -> None:
    both = AllOf([above(0), above(1)])
    left = both.apply(EDIT)
    assert isinstance(left, Add)
    assert both.passes(Node(NEW), None)
    assert not both.passes(Node(OLD), None)
    assert AllOf([above(5), above(1)]).apply(EDIT) is None


def test_any_branch_passes_once_what_some_branch_passes() -> None:
    some = AnyBranch([above(5), above(1)])
    assert isinstance(some.apply(EDIT), Add)
    assert isinstance(some.apply(edit(OLD, NEW)), Remove)
    assert some.passes(Node(NEW), None)
    assert not some.passes(Node(OLD), None)
    assert some.apply(add(OLD)) is None
