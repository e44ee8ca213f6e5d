"""EXISTS, NOT EXISTS and the cap below them."""

from typing import Any

import pytest

from reference_cache.zql.engine.build import BuildError
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.operator import Request
from reference_cache.zql.ivm.operators.cap import Cap
from tests.reference_cache.zql.ivm.pipelines import World, fetched, keys
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind

I1, I2 = ("i1", "u1", 1), ("i2", "u2", 2)
C1 = ("c1", "i1", "x")
BY_ISSUE = ("issue",)


@pytest.fixture(params=SOURCE_KINDS)
def world(request: pytest.FixtureRequest) -> World:
    kind: SourceKind = request.param
    return World(kind, issue=[I1, I2], comment=[C1], user=[("u1", True)])


def exists(op: str = "EXISTS", system: str = "client", **subquery: Any) -> dict[str, Any]:
    return {
        "type": "correlatedSubquery",
        "op": op,
        "related": {
            "system": system,
            "correlation": {"parentField": ["id"], "childField": ["issue"]},
            "subquery": {"table": "comment", "alias": "comments", **subquery},
        },
    }


def owned(op: str = "EXISTS") -> dict[str, Any]:
    return {
        "type": "correlatedSubquery",
        "op": op,
        "related": {
            "correlation": {"parentField": ["owner"], "childField": ["id"]},
            "subquery": {"table": "user", "alias": "owner"},
        },
    }


def where(*conditions: dict[str, Any], kind: str = "and", **query: Any) -> dict[str, Any]:
    condition = conditions[0] if len(conditions) == 1 else {"type": kind, "conditions": list(conditions)}
    return {"table": "issue", "where": condition, **query}


def test_exists_passes_parents_with_children_and_not_exists_the_others(world: World) -> None:
    assert keys(world.build(where(exists()))) == ["i1"]
    assert keys(world.build(where(exists("NOT EXISTS")))) == ["i2"]


def test_a_limit_of_zero_makes_exists_false_and_not_exists_true(world: World) -> None:
    assert keys(world.build(where(exists(limit=0)))) == []
    assert keys(world.build(where(exists("NOT EXISTS", limit=0)))) == ["i1", "i2"]


def test_the_first_child_brings_the_parent_and_the_last_takes_it_away(world: World) -> None:
    keys(world.build(where(exists())))
    c2, c3 = ("c2", "i2", ""), ("c3", "i2", "")
    assert world.push("comment", add(c2)) == [("add", I2, {"comments": [(c2,)]})]
    assert world.push("comment", add(c3)) == [("child", I2, "comments", ("add", c3))]
    assert world.push("comment", edit(("c3", "i2", "!"), c3)) == [
        ("child", I2, "comments", ("edit", ("c3", "i2", "!"), c3))
    ]
    assert world.push("comment", remove(c2)) == [("child", I2, "comments", ("remove", c2))]
    assert world.push("comment", remove(("c3", "i2", "!"))) == [("remove", I2, {"comments": [(("c3", "i2", "!"),)]})]


def test_not_exists_is_the_mirror_image(world: World) -> None:
    keys(world.build(where(exists("NOT EXISTS"))))
    c2, c3 = ("c2", "i2", ""), ("c3", "i2", "")
    assert world.push("comment", add(c2)) == [("remove", I2, {"comments": []})]
    assert world.push("comment", add(c3)) == []
    assert world.push("comment", remove(c2)) == []
    assert world.push("comment", remove(c3)) == [("add", I2, {"comments": []})]


def test_parents_come_and_go_with_their_answer(world: World) -> None:
    keys(world.build(where(exists())))
    assert world.push("issue", add(("i3", None, 3))) == []
    assert world.push("issue", edit(("i1", "u1", 9), I1)) == [("edit", ("i1", "u1", 9), I1)]
    assert world.push("issue", remove(("i1", "u1", 9))) == [("remove", ("i1", "u1", 9), {"comments": [(C1,)]})]


def test_a_child_that_moves_changes_both_parents(world: World) -> None:
    keys(world.build(where(exists())))
    moved = ("c1", "i2", "x")
    assert world.push("comment", edit(moved, C1)) == [
        ("remove", I1, {"comments": [(C1,)]}),
        ("add", I2, {"comments": [(moved,)]}),
    ]


def test_an_or_lets_a_row_through_once(world: World) -> None:
    pipeline = world.build(where(exists(), owned(), kind="or"))
    assert keys(pipeline) == ["i1"]
    assert [message[0] for message in world.push("issue", add(("i3", "u1", 3)))] == ["add"]
    assert [message[0] for message in world.push("comment", remove(C1))] == ["child"]
    assert [message[0] for message in world.push("user", remove(("u1", True)))] == ["remove", "remove"]
    assert keys(pipeline) == []


def test_an_edit_that_changes_branches_stays_an_edit(world: World) -> None:
    rank = {"type": "simple", "op": "=", "left": {"type": "column", "name": "rank"}}
    both = [{**rank, "right": {"type": "literal", "value": value}} for value in (2, 5)]
    keys(world.build(where(exists(), *both, kind="or")))
    assert world.push("issue", edit(("i2", "u2", 5), I2)) == [("edit", ("i2", "u2", 5), I2)]


def test_start_and_related_make_no_sense_below_exists(world: World) -> None:
    for nonsense in (
        {"start": {"row": {"id": "c1"}, "exclusive": False}},
        {"related": [owned()["related"]]},
    ):
        with pytest.raises(BuildError, match="comments"):
            world.build(where(exists(**nonsense)))


# Cap


def cap(world: World, limit: int) -> Cap:
    made = Cap(world.source("comment").connect(None, None, BY_ISSUE), limit, BY_ISSUE)
    world.listen(made)
    return made


def comments(world: World, *numbers: int) -> list[tuple[str, str, str]]:
    rows = [(f"c{number}", "i1", "") for number in numbers]
    for row in rows:
        world.push("comment", add(row))
    return rows


def test_a_cap_keeps_what_it_let_through_and_no_more(world: World) -> None:
    capped = cap(world, 2)
    c2, c3 = comments(world, 2, 3)
    assert fetched(capped, Request(BY_ISSUE, "i1")) == [(C1,), (c2,)]
    assert world.push("comment", add(("c0", "i1", ""))) == []
    assert fetched(capped, Request(BY_ISSUE, "i1")) == [(C1,), (c2,)]
    assert world.push("comment", remove(c3)) == []


def test_a_row_that_leaves_is_replaced_after_it_is_gone(world: World) -> None:
    capped = cap(world, 2)
    c2, c3 = comments(world, 2, 3)
    fetched(capped, Request(BY_ISSUE, "i1"))
    assert world.push("comment", remove(C1)) == [("remove", C1), ("add", c3)]
    assert world.push("comment", remove(c2)) == [("remove", c2)]
    assert world.push("comment", add(c2)) == [("add", c2)]


def test_a_partition_that_was_never_fetched_pushes_nothing(world: World) -> None:
    capped = cap(world, 2)
    assert world.push("comment", remove(C1)) == []
    assert fetched(capped, Request(BY_ISSUE, "i1")) == []
    assert world.push("comment", add(C1)) == [("add", C1)]


def test_edits_of_kept_rows_pass_and_their_keys_follow(world: World) -> None:
    capped = cap(world, 1)
    fetched(capped, Request(BY_ISSUE, "i1"))
    (c2,) = comments(world, 2)
    renamed = ("c7", "i1", "x")
    assert world.push("comment", edit(("c2", "i1", "?"), c2)) == []
    assert world.push("comment", edit(renamed, C1)) == [("edit", renamed, C1)]
    assert world.push("comment", remove(renamed)) == [("remove", renamed), ("add", ("c2", "i1", "?"))]


def test_a_cap_of_zero_lets_nothing_through(world: World) -> None:
    capped = cap(world, 0)
    assert fetched(capped, Request(BY_ISSUE, "i1")) == []
    assert world.push("comment", remove(C1)) == []


def test_permissions_keep_one_row_and_swap_it_when_it_goes(world: World) -> None:
    (c2,) = comments(world, 2)
    assert fetched(world.build(where(exists(system="permissions")))) == [(I1, {"comments": [(C1,)]})]
    assert world.push("comment", remove(C1)) == [
        ("remove", I1, {"comments": [(C1,)]}),
        ("add", I1, {"comments": [(c2,)]}),
    ]


def test_an_exists_shows_at_most_three_rows(world: World) -> None:
    comments(world, 2, 3, 4, 5)
    ((_, below),) = fetched(world.build(where(exists())))
    assert len(below["comments"]) == 3
