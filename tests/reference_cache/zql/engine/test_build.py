"""Which operators a query becomes, seen through the labels the build hook is given."""

from typing import Any

import pytest

from protocol.sync.ast_json import parse
from reference_cache.zql.engine.build import Host, build
from reference_cache.zql.ivm.operator import Input
from reference_cache.zql.ordering import complete_query
from tests.reference_cache.zql.ivm.pipelines import SCHEMA, World, fetched, keys

SIMPLE = {
    "type": "simple",
    "op": ">",
    "left": {"type": "column", "name": "rank"},
    "right": {"type": "literal", "value": 1},
}


def hop(table: str, parent: str, child: str, **more: Any) -> dict[str, Any]:
    related: dict[str, Any] = {key: more.pop(key) for key in ("hidden", "system") if key in more}
    return {
        **related,
        "correlation": {"parentField": [parent], "childField": [child]},
        "subquery": {"table": table, "alias": table, **more},
    }


def exists(related: dict[str, Any], op: str = "EXISTS", **more: Any) -> dict[str, Any]:
    return {"type": "correlatedSubquery", "op": op, "related": related, **more}


def both(*conditions: Any) -> dict[str, Any]:
    return {"type": "and", "conditions": list(conditions)}


def either(*conditions: Any) -> dict[str, Any]:
    return {"type": "or", "conditions": list(conditions)}


COMMENTS = hop("comment", "id", "issue")
OWNER = hop("user", "owner", "id")


def operators(where: dict[str, Any] | None = None, **query: Any) -> list[str]:
    world = World("memory")
    labels: list[str] = []

    def note(operator: Input, label: str) -> Input:
        labels.append(label)
        return operator

    asked = {"table": "issue", **query} if where is None else {"table": "issue", "where": where, **query}
    build(complete_query(parse(asked), SCHEMA), Host(world.source, wrap=note))
    return labels


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, ["source issue"]),
        (SIMPLE, ["source issue"]),
        (either(SIMPLE, SIMPLE), ["source issue"]),
        (exists(COMMENTS), ["source issue", "source comment", "cap 3", "join comment", "filter"]),
        (
            exists(hop("comment", "id", "issue", system="permissions")),
            ["source issue", "source comment", "cap 1", "join comment", "filter"],
        ),
        (exists(COMMENTS, flip=True), ["source issue", "source comment", "flipped join comment"]),
        (
            exists(COMMENTS, "NOT EXISTS", flip=True),
            ["source issue", "source comment", "cap 3", "join comment", "filter"],
        ),
        (
            both(SIMPLE, exists(COMMENTS), exists(OWNER, flip=True)),
            [
                "source issue",
                "source comment",
                "cap 3",
                "join comment_0",
                "filter",
                "source user",
                "flipped join user_1",
            ],
        ),
        (
            either(SIMPLE, exists(COMMENTS), exists(OWNER, flip=True)),
            [
                "source issue",
                "source comment",
                "cap 3",
                "join comment_0",
                "filter",
                "source user",
                "flipped join user_1",
                "union",
            ],
        ),
    ],
)
def test_where_becomes_filters_joins_and_unions(where: Any, expected: list[str]) -> None:
    assert operators(where) == expected


def test_a_cap_is_used_at_every_depth_of_unflipped_exists() -> None:
    nested = exists(hop("comment", "id", "issue", where=exists(hop("user", "text", "id"))))
    assert [label for label in operators(nested) if label.startswith(("cap", "take"))] == ["cap 3", "cap 3"]


def test_a_flip_below_an_exists_needs_order_so_the_limit_is_a_take() -> None:
    flipped_below = either(exists(hop("user", "text", "id"), flip=True), exists(hop("user", "id", "id")))
    nested = exists(hop("comment", "id", "issue", where=flipped_below))
    assert [label for label in operators(nested) if label.startswith(("cap", "take"))] == ["cap 3", "take 3"]


def test_start_limit_and_related_come_in_this_order() -> None:
    query = {"start": {"row": {"id": "a"}, "exclusive": True}, "limit": 5, "related": [COMMENTS]}
    assert operators(exists(OWNER), **query) == [
        "source issue",
        "skip",
        "source user",
        "cap 3",
        "join user",
        "filter",
        "take 5",
        "source comment",
        "join comment",
    ]


def test_related_keep_their_limits_zero_included() -> None:
    assert "take 0" in operators(related=[hop("comment", "id", "issue", limit=0)])


def test_two_exists_on_one_relationship_do_not_share_rows() -> None:
    world = World("memory", issue=[("i1", None, 1)], comment=[("c1", "i1", "x"), ("c2", "i1", "y")])
    texts = [
        exists(
            hop(
                "comment",
                "id",
                "issue",
                where={
                    **SIMPLE,
                    "op": "=",
                    "left": {"type": "column", "name": "text"},
                    "right": {"type": "literal", "value": text},
                },
            )
        )
        for text in ("x", "y")
    ]
    assert fetched(world.build({"table": "issue", "where": both(*texts)})) == [
        (("i1", None, 1), {"comment_0": [(("c1", "i1", "x"),)], "comment_1": [(("c2", "i1", "y"),)]})
    ]


def test_of_relationships_with_one_alias_the_last_is_built_in_the_first_s_place() -> None:
    other = hop("user", "owner", "id")
    other["subquery"]["alias"] = "comment"
    assert operators(related=[COMMENTS, OWNER, other]) == [
        "source issue",
        "source user",
        "join comment",
        "source user",
        "join user",
    ]


def test_a_nest_of_conditions_gives_what_it_says() -> None:
    world = World(
        "memory",
        issue=[("a", "u1", 1), ("b", "u1", 2), ("c", None, 3), ("d", "u2", 0)],
        comment=[("c1", "a", ""), ("c2", "c", "")],
        user=[("u1", True)],
    )
    nest = both(either(exists(COMMENTS), exists(OWNER)), either(SIMPLE, exists(COMMENTS, "NOT EXISTS")))
    flipped = both(either(exists(COMMENTS, flip=True), exists(OWNER, flip=True)), SIMPLE)
    assert keys(world.build({"table": "issue", "where": nest})) == ["b", "c"]
    assert keys(world.build({"table": "issue", "where": flipped})) == ["b", "c"]
