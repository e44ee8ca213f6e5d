"""Join and FlippedJoin: fetching, pushing from either side, and children half-way through a change."""

from typing import Any

import pytest

from reference_cache.zql.ivm.change import Change, add, edit, remove
from reference_cache.zql.ivm.operator import Input, Request, StartPosition
from reference_cache.zql.ivm.operators.flipped_join import FlippedJoin
from reference_cache.zql.ivm.operators.join import Join
from tests.reference_cache.zql.ivm.pipelines import BY_ID, COMMENTS_OF_ISSUE, World, fetched, keys
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind
from tests.support.zql.recorder import Message, Recorder

I1, I2, I3 = ("i1", "u1", 1), ("i2", "u1", 2), ("i3", None, 3)
C1, C2, C3, C4 = ("c1", "i1", "x"), ("c2", "i1", "y"), ("c3", "i2", "z"), ("c4", None, "w")


@pytest.fixture(params=SOURCE_KINDS)
def world(request: pytest.FixtureRequest) -> World:
    kind: SourceKind = request.param
    return World(kind, issue=[I1, I2, I3], comment=[C1, C2, C3, C4], user=[("u1", True)])


def join(world: World, *, flipped: bool = False, log: list[Message] | None = None) -> Input:
    parent: Input = world.source("issue").connect(BY_ID, None, ["id"])
    child: Input = world.source("comment").connect(BY_ID, None, ["issue"])
    if log is not None:
        parent, child = Recorder(parent, "issues", log), Recorder(child, "comments", log)
    made = (FlippedJoin if flipped else Join)(
        parent, child, COMMENTS_OF_ISSUE, "comments", hidden=False, system="client"
    )
    return world.listen(made)


# Join, fetching


def test_every_parent_comes_with_its_children(world: World) -> None:
    assert fetched(join(world)) == [
        (I1, {"comments": [(C1,), (C2,)]}),
        (I2, {"comments": [(C3,)]}),
        (I3, {"comments": []}),
    ]


def test_children_are_read_only_when_asked_for(world: World) -> None:
    log: list[Message] = []
    joined = join(world, log=log)
    assert keys(joined, Request(("id",), "i1")) == ["i1"]
    assert log == [("issues", "fetch", {"where": (("id",), "i1")})]


def test_a_null_parent_column_has_no_children(world: World) -> None:
    by_owner = {"table": "issue", "related": [related("user", "owner", "id")]}
    assert fetched(world.build(by_owner)) == [
        (I1, {"user": [(("u1", True),)]}),
        (I2, {"user": [(("u1", True),)]}),
        (I3, {"user": []}),
    ]


def related(table: str, parent: str, child: str, **subquery: Any) -> dict[str, Any]:
    return {
        "correlation": {"parentField": [parent], "childField": [child]},
        "subquery": {"table": table, "alias": table, **subquery},
    }


# Join, pushing


def test_a_parent_is_announced_with_its_children(world: World) -> None:
    join(world)
    assert world.push("comment", add(("c9", "i9", ""))) == []
    assert world.push("issue", add(("i9", None, 9))) == [
        ("add", ("i9", None, 9), {"comments": [(("c9", "i9", ""),)]}),
    ]
    assert world.push("issue", remove(I1)) == [("remove", I1, {"comments": [(C1,), (C2,)]})]
    assert world.push("issue", edit(("i2", "u9", 2), I2)) == [("edit", ("i2", "u9", 2), I2)]


def test_a_child_is_announced_under_its_parent(world: World) -> None:
    join(world)
    new = ("c9", "i3", "")
    assert world.push("comment", add(new)) == [("child", I3, "comments", ("add", new))]
    assert world.push("comment", remove(C3)) == [("child", I2, "comments", ("remove", C3))]
    assert world.push("comment", edit(("c1", "i1", "X"), C1)) == [
        ("child", I1, "comments", ("edit", ("c1", "i1", "X"), C1))
    ]


def test_a_child_without_a_parent_pushes_nothing(world: World) -> None:
    join(world)
    assert world.push("comment", add(("c9", "nowhere", ""))) == []
    assert world.push("comment", remove(C4)) == []


def test_a_child_that_moves_leaves_one_parent_and_joins_another(world: World) -> None:
    join(world)
    moved = ("c1", "i2", "x")
    assert world.push("comment", edit(moved, C1)) == [
        ("child", I1, "comments", ("remove", C1)),
        ("child", I2, "comments", ("add", moved)),
    ]


def test_a_parent_whose_key_changes_takes_other_children(world: World) -> None:
    world.build({"table": "issue", "related": [related("user", "owner", "id")]})
    assert world.push("issue", edit(("i3", "u1", 3), I3)) == [
        ("remove", I3, {"user": []}),
        ("add", ("i3", "u1", 3), {"user": [(("u1", True),)]}),
    ]


def test_a_change_two_levels_down_arrives_wrapped_twice(world: World) -> None:
    nested = related("comment", "id", "issue", related=[related("user", "text", "id")])
    world.build({"table": "issue", "related": [nested]})
    assert world.push("user", add(("x", None))) == [
        ("child", I1, "comment", ("child", C1, "user", ("add", ("x", None))))
    ]


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (add(("u2", None)), [], [("u2", None)]),
        (remove(("u1", True)), [("u1", True)], []),
        (edit(("u1", False), ("u1", True)), [("u1", True)], [("u1", False)]),
    ],
)
def test_parents_not_served_yet_show_the_children_without_the_change(
    world: World, change: Any, before: list[Any], after: list[Any]
) -> None:
    key = change.node.row[0]
    for row in (I1, I2, I3):
        world.push("issue", edit((row[0], key, row[2]), row))
    pipeline = world.build({"table": "issue", "related": [related("user", "owner", "id")]})
    seen: list[list[Any]] = []

    def look(_: Change) -> None:
        seen.append([[child[0] for child in below["user"]] for _, below in fetched(pipeline)])

    pipeline.set_output(look)
    world.source("user").push(change)
    assert seen == [[after, before, before], [after, after, before], [after, after, after]]


def test_a_table_joined_with_itself_moves_from_old_to_new_once(world: World) -> None:
    world.build({"table": "issue", "related": [related("issue", "id", "owner")]})
    own = ("i1", "i1", 1)
    assert world.push("issue", edit(own, I1)) == [
        ("remove", I1, {"issue": []}),
        ("add", own, {"issue": []}),
        ("child", own, "issue", ("add", own)),
    ]
    assert world.push("issue", remove(own)) == [
        ("remove", own, {"issue": [(own,)]}),
    ]


# FlippedJoin


def test_only_parents_with_children_pass_in_parent_order(world: World) -> None:
    assert fetched(join(world, flipped=True)) == [
        (I1, {"comments": [(C1,), (C2,)]}),
        (I2, {"comments": [(C3,)]}),
    ]


def test_parents_are_looked_up_by_one_list_of_keys(world: World) -> None:
    log: list[Message] = []
    assert keys(join(world, flipped=True, log=log)) == ["i1", "i2"]
    assert log == [("comments", "fetch", {}), ("issues", "fetch", {"any_of": [(("id",), ["i1", "i2"])]})]


def test_a_request_travels_through_a_flipped_join(world: World) -> None:
    flipped = join(world, flipped=True)
    assert keys(flipped, Request(reverse=True)) == ["i2", "i1"]
    assert keys(flipped, Request(start=StartPosition(("i1", None, None), inclusive=False))) == ["i2"]
    assert keys(flipped, Request(("id",), "i2")) == ["i2"]
    assert keys(flipped, Request(("id",), "i3")) == []
    assert keys(flipped, Request(("owner",), "u1")) == ["i1", "i2"]


def test_a_parent_without_children_is_not_announced(world: World) -> None:
    join(world, flipped=True)
    assert world.push("issue", edit(("i3", None, 4), I3)) == []
    assert world.push("issue", remove(I2)) == [("remove", I2, {"comments": [(C3,)]})]


def test_the_first_and_the_last_child_decide_about_the_parent(world: World) -> None:
    join(world, flipped=True)
    new, second = ("c9", "i3", ""), ("c8", "i3", "")
    assert world.push("comment", add(new)) == [("add", I3, {"comments": [(new,)]})]
    assert world.push("comment", add(second)) == [("child", I3, "comments", ("add", second))]
    assert world.push("comment", remove(new)) == [("child", I3, "comments", ("remove", new))]
    assert world.push("comment", remove(second)) == [("remove", I3, {"comments": [(second,)]})]


def flipped_owner(**query: Any) -> dict[str, Any]:
    exists = {"type": "correlatedSubquery", "op": "EXISTS", "flip": True, "related": related("user", "owner", "id")}
    return {"table": "issue", "where": exists, **query}


def test_parents_not_served_yet_stay_while_their_last_child_is_removed(world: World) -> None:
    pipeline = world.build(flipped_owner())
    seen: list[list[Any]] = []
    pipeline.set_output(lambda change: seen.append(keys(pipeline)))
    world.source("user").push(remove(("u1", True)))
    assert seen == [["i2"], []]


def test_parents_not_served_yet_are_absent_while_their_first_child_is_added(world: World) -> None:
    pipeline = world.build(flipped_owner())
    world.push("user", remove(("u1", True)))
    seen: list[list[Any]] = []
    pipeline.set_output(lambda change: seen.append(keys(pipeline)))
    world.source("user").push(add(("u1", False)))
    assert seen == [["i1"], ["i1", "i2"]]


def test_a_limit_above_a_flipped_join_is_kept_full(world: World) -> None:
    pipeline = world.build(flipped_owner(limit=1, orderBy=[["rank", "desc"]]))
    assert keys(pipeline) == ["i2"]
    assert [message[:2] for message in world.push("issue", edit(("i2", "u1", 0), I2))] == [
        ("remove", I2),
        ("add", I1),
    ]
    assert [message[:2] for message in world.push("user", remove(("u1", True)))] == [
        ("remove", I1),
        ("add", ("i2", "u1", 0)),
        ("remove", ("i2", "u1", 0)),
    ]


def test_the_limit_of_a_flipped_subquery_does_not_matter(world: World) -> None:
    limited = flipped_owner()
    limited["where"]["related"]["subquery"]["limit"] = 1
    assert keys(world.build(limited)) == ["i1", "i2"]
