"""Skip: which part of the input is past the start, forwards, backwards and under change."""

from typing import Any

import pytest

from reference_cache.zql.ivm.change import SourceChange, add, edit, remove
from reference_cache.zql.ivm.operator import Request, StartPosition
from reference_cache.zql.ivm.operators.skip import Skip
from tests.reference_cache.zql.ivm.pipelines import BY_ID, World, keys
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind

ROWS = [(key, None, 0) for key in "abcde"]


@pytest.fixture(params=SOURCE_KINDS)
def world(request: pytest.FixtureRequest) -> World:
    kind: SourceKind = request.param
    return World(kind, issue=ROWS)


def skip(world: World, key: str, *, inclusive: bool) -> Skip:
    made = Skip(world.source("issue").connect(BY_ID), StartPosition((key, None, None), inclusive=inclusive))
    world.listen(made)
    return made


@pytest.mark.parametrize(
    ("inclusive", "request_", "expected"),
    [
        (True, Request(), "cde"),
        (False, Request(), "de"),
        (True, Request(reverse=True), "edc"),
        (False, Request(reverse=True), "ed"),
        (True, Request(start=StartPosition(("a", None, None), inclusive=True)), "cde"),
        (True, Request(start=StartPosition(("c", None, None), inclusive=False)), "de"),
        (False, Request(start=StartPosition(("c", None, None), inclusive=True)), "de"),
        (True, Request(start=StartPosition(("d", None, None), inclusive=False)), "e"),
        (True, Request(start=StartPosition(("d", None, None), inclusive=True), reverse=True), "dc"),
        (True, Request(start=StartPosition(("c", None, None), inclusive=True), reverse=True), "c"),
        (False, Request(start=StartPosition(("c", None, None), inclusive=True), reverse=True), ""),
        (True, Request(start=StartPosition(("b", None, None), inclusive=True), reverse=True), ""),
    ],
)
def test_the_start_and_a_requested_start_combine(
    world: World, inclusive: bool, request_: Request, expected: str
) -> None:
    assert keys(skip(world, "c", inclusive=inclusive), request_) == list(expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (add(("bb", None, 0)), []),
        (add(("cc", None, 0)), ["add"]),
        (remove(ROWS[0]), []),
        (remove(ROWS[2]), ["remove"]),
        (edit(("a", None, 1), ROWS[0]), []),
        (edit(("e", None, 1), ROWS[4]), ["edit"]),
        (edit(("aa", None, 0), ROWS[4]), ["remove"]),
        (edit(("z", None, 0), ROWS[0]), ["add"]),
    ],
)
def test_changes_pass_by_their_side_of_the_start(world: World, change: SourceChange, expected: list[str]) -> None:
    skip(world, "c", inclusive=True)
    assert [message[0] for message in world.push("issue", change)] == expected


def test_the_start_row_itself_passes_only_if_inclusive(world: World) -> None:
    skip(world, "c", inclusive=False)
    assert world.push("issue", remove(ROWS[2])) == []


def test_a_cursor_may_lack_key_columns(world: World) -> None:
    for row in ({"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}):
        world.push("part", add((row["a"], row["b"], None)))
    cursor: dict[str, Any] = {"row": {"a": 1}, "exclusive": True}
    forwards = world.build({"table": "part", "start": cursor})
    downwards = world.build({"table": "part", "start": cursor, "orderBy": [["a", "desc"], ["b", "desc"]]})
    assert [node.row[:2] for node in forwards.fetch(Request())] == [(1, "x"), (1, "y"), (2, "x")]  # type: ignore[union-attr]
    assert [node.row[:2] for node in downwards.fetch(Request())] == []  # type: ignore[union-attr]
