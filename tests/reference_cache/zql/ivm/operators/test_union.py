"""OR with flipped branches: merging, and which branch speaks for a row."""

from typing import Any

import pytest

from protocol.sync.ast_json import parse
from reference_cache.zql.engine.build import Host, build
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.operator import Request
from reference_cache.zql.ordering import complete_query
from tests.golden.drifting_union import drifting
from tests.reference_cache.zql.ivm.pipelines import SCHEMA, World, fetched, keys
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind

I1, I2, I3 = ("i1", "u1", 1), ("i2", "u1", 5), ("i3", None, 5)
C1, U1 = ("c1", "i1", ""), ("u1", True)


@pytest.fixture(params=SOURCE_KINDS)
def world(request: pytest.FixtureRequest) -> World:
    kind: SourceKind = request.param
    return World(kind, issue=[I1, I2, I3], comment=[C1], user=[U1])


def flipped(table: str, parent: str, child: str) -> dict[str, Any]:
    return {
        "type": "correlatedSubquery",
        "op": "EXISTS",
        "flip": True,
        "related": {
            "correlation": {"parentField": [parent], "childField": [child]},
            "subquery": {"table": table, "alias": table},
        },
    }


COMMENTED = flipped("comment", "id", "issue")
OWNED = flipped("user", "owner", "id")
HIGH = {
    "type": "simple",
    "op": ">",
    "left": {"type": "column", "name": "rank"},
    "right": {"type": "literal", "value": 3},
}


def any_of(*conditions: dict[str, Any], **query: Any) -> dict[str, Any]:
    return {"table": "issue", "where": {"type": "or", "conditions": list(conditions)}, **query}


def test_branches_are_merged_in_order_without_repeats(world: World) -> None:
    union = world.build(any_of(COMMENTED, OWNED, HIGH))
    assert keys(union) == ["i1", "i2", "i3"]
    assert keys(union, Request(reverse=True)) == ["i3", "i2", "i1"]


def test_a_row_carries_the_relationships_of_its_lowest_branch_only(world: World) -> None:
    assert fetched(world.build(any_of(COMMENTED, OWNED))) == [
        (I1, {"comment_0": [(C1,)]}),
        (I2, {"user_1": [(U1,)]}),
    ]


def test_one_change_through_several_branches_comes_out_once(world: World) -> None:
    world.build(any_of(COMMENTED, OWNED))
    assert world.push("issue", remove(I1)) == [("remove", I1, {"comment_0": [(C1,)]})]
    assert world.push("issue", edit(("i2", "u1", 0), I2)) == [("edit", ("i2", "u1", 0), I2)]
    assert world.push("issue", edit(("i3", None, 0), I3)) == []


def test_a_row_that_gets_a_lower_branch_changes_its_relationships(world: World) -> None:
    world.build(any_of(COMMENTED, OWNED))
    c2 = ("c2", "i2", "")
    assert world.push("comment", add(c2)) == [
        ("remove", I2, {"user_1": [(U1,)]}),
        ("add", I2, {"comment_0": [(c2,)]}),
    ]
    assert world.push("comment", remove(c2)) == [
        ("remove", I2, {"comment_0": [(c2,)]}),
        ("add", I2, {"user_1": [(U1,)]}),
    ]


def test_news_from_a_higher_branch_is_no_news(world: World) -> None:
    world.build(any_of(COMMENTED, OWNED))
    assert world.push("user", edit(("u1", False), U1)) == [("child", I2, "user_1", ("edit", ("u1", False), U1))]
    assert world.push("user", remove(("u1", False))) == [("remove", I2, {"user_1": [(("u1", False),)]})]


def test_an_edit_that_changes_branches_takes_back_what_was_announced(world: World) -> None:
    world.build(any_of(HIGH, OWNED))
    low = ("i2", "u1", 0)
    assert world.push("issue", edit(low, I2)) == [("remove", I2), ("add", low, {"user_0": [(U1,)]})]


def test_a_limit_above_a_union_survives_an_empty_window(world: World) -> None:
    union = world.build(any_of(COMMENTED, OWNED, limit=1))
    assert keys(union) == ["i1"]
    world.push("user", remove(U1))
    assert [message[0] for message in world.push("comment", remove(C1))] == ["remove"]
    assert keys(union) == []
    assert [message[0] for message in world.push("user", add(U1))] == ["add"]
    assert keys(union) == ["i1"]


def test_leaving_disconnects_every_branch_and_the_input(world: World) -> None:
    world.build(any_of(COMMENTED, OWNED, HIGH)).destroy()
    assert [list(world.source(name).connections) for name in ("issue", "comment", "user")] == [[], [], []]


def test_the_drifting_union_speaks_for_all_branches_at_once(world: World) -> None:
    query = complete_query(parse(any_of(COMMENTED, OWNED)), SCHEMA)
    with drifting():
        world.listen(build(query, Host(world.source)))
    c2 = ("c2", "i2", "")
    assert world.push("comment", add(c2)) == []
    assert world.push("issue", remove(I2)) == [("remove", I2, {"comment_0": [(c2,)], "user_1": [(U1,)]})]
