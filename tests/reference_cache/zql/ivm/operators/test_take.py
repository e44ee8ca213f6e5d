"""Take: the window, its reserve, partitions, and every way a row can cross the bound."""

import random
from typing import Any

import pytest

from protocol.sync.ast import Ordering
from reference_cache.zql.ivm.change import SourceChange, add, edit, remove
from reference_cache.zql.ivm.operator import Input, Request, StartPosition
from reference_cache.zql.ivm.operators.take import RESERVE, SEARCHED, Take
from reference_cache.zql.schema import Row
from tests.reference_cache.zql.ivm.pipelines import World, keys
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind
from tests.support.zql.recorder import Message, Recorder

BY_RANK: Ordering = (("rank", "asc"), ("id", "asc"))
BY_OWNER = ("owner",)


@pytest.fixture(params=SOURCE_KINDS)
def kind(request: pytest.FixtureRequest) -> SourceKind:
    found: SourceKind = request.param
    return found


def ranked(*ranks: int, owner: str | None = "u") -> list[Row]:
    """Rows named after their rank: r10, r20, ..."""
    return [(f"r{rank}", owner, rank) for rank in ranks]


def take(world: World, limit: int, partition: tuple[str, ...] = (), log: list[Message] | None = None) -> Take:
    input: Input = world.source("issue").connect(BY_RANK, None, partition)
    made = Take(input if log is None else Recorder(input, "input", log), limit, partition)
    world.listen(made)
    return made


def taken(kind: SourceKind, limit: int, *ranks: int) -> tuple[World, Take]:
    world = World(kind, issue=ranked(*ranks))
    window = take(world, limit)
    keys(window)
    return world, window


def said(world: World, change: SourceChange) -> list[tuple[str, Any]]:
    """What a push made the take say: the kind of each change and the row's rank afterwards."""
    return [(message[0], message[1][2]) for message in world.push("issue", change)]


def moved(old: int, new: int) -> SourceChange:
    return edit((f"r{old}", "u", new), (f"r{old}", "u", old))


# Hydrating


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, []), (1, [10]), (2, [10, 20]), (3, [10, 20, 30]), (9, [10, 20, 30])]
)
def test_the_first_rows_are_delivered(kind: SourceKind, limit: int, expected: list[int]) -> None:
    _, window = taken(kind, limit, 30, 10, 20)
    assert keys(window) == [f"r{rank}" for rank in expected]


def test_a_limit_of_zero_hears_nothing(kind: SourceKind) -> None:
    world, _ = taken(kind, 0, 10)
    assert said(world, add(("r5", "u", 5))) == []


def test_a_consumer_may_stop_anywhere(kind: SourceKind) -> None:
    world = World(kind, issue=ranked(10, 20, 30))
    window = take(world, 2)
    assert next(iter(window.fetch(Request()))) is not None
    assert said(world, add(("r5", "u", 5))) == [("remove", 20), ("add", 5)]


def test_a_window_that_was_never_fetched_is_silent(kind: SourceKind) -> None:
    world = World(kind, issue=ranked(10))
    take(world, 2)
    assert said(world, add(("r5", "u", 5))) == []


def test_requests_select_from_the_window(kind: SourceKind) -> None:
    _, window = taken(kind, 3, 10, 20, 30, 40)
    assert keys(window, Request(reverse=True)) == ["r30", "r20", "r10"]
    assert keys(window, Request(start=StartPosition(("r10", None, 10), inclusive=False))) == ["r20", "r30"]
    assert keys(window, Request(("id",), "r20")) == ["r20"]
    assert keys(window, Request(("id",), "r40")) == []


def test_rows_of_a_large_window_are_found_through_the_input(kind: SourceKind) -> None:
    world, window = taken(kind, SEARCHED + 1, *range(SEARCHED + 2))
    assert keys(window, Request(("id",), "r3")) == ["r3"]
    assert keys(window, Request(("id",), f"r{SEARCHED + 1}")) == []
    assert keys(window, Request(("owner",), "u")) == [f"r{rank}" for rank in range(SEARCHED + 1)]
    world.push("issue", remove(("r3", "u", 3)))
    assert keys(window, Request(("id",), f"r{SEARCHED + 1}")) == [f"r{SEARCHED + 1}"]


# Pushing; a window of two over 10, 20, 30, 40 unless said otherwise


@pytest.mark.parametrize(
    ("ranks", "change", "expected", "window"),
    [
        ((10,), add(("r5", "u", 5)), [("add", 5)], [5, 10]),
        ((10,), add(("r15", "u", 15)), [("add", 15)], [10, 15]),
        ((10, 20), add(("r5", "u", 5)), [("remove", 20), ("add", 5)], [5, 10]),
        ((10, 20), add(("r15", "u", 15)), [("remove", 20), ("add", 15)], [10, 15]),
        ((10, 20), add(("r25", "u", 25)), [], [10, 20]),
        ((10,), remove(("r10", "u", 10)), [("remove", 10)], []),
        ((10, 20, 30), remove(("r10", "u", 10)), [("remove", 10), ("add", 30)], [20, 30]),
        ((10, 20, 30), remove(("r20", "u", 20)), [("remove", 20), ("add", 30)], [10, 30]),
        ((10, 20, 30), remove(("r30", "u", 30)), [], [10, 20]),
        ((10, 20), remove(("r20", "u", 20)), [("remove", 20)], [10]),
        # The row is the bound, ...
        ((10, 20, 30, 40), moved(20, 15), [("edit", 15)], [10, 15]),
        ((10, 20, 30, 40), moved(20, 5), [("edit", 5)], [5, 10]),
        ((10, 20, 30, 40), moved(20, 25), [("edit", 25)], [10, 25]),
        ((10, 20, 30, 40), moved(20, 35), [("remove", 20), ("add", 30)], [10, 30]),
        ((10, 20), moved(20, 35), [("edit", 35)], [10, 35]),
        # ... beyond it, ...
        ((10, 20, 30, 40), moved(30, 35), [], [10, 20]),
        ((10, 20, 30, 40), moved(30, 15), [("remove", 20), ("add", 15)], [10, 15]),
        ((10, 20, 30, 40), moved(40, 5), [("remove", 20), ("add", 5)], [5, 10]),
        # ... or before it.
        ((10, 20, 30, 40), moved(10, 15), [("edit", 15)], [15, 20]),
        ((10, 20, 30, 40), moved(10, 25), [("edit", 25)], [20, 25]),
        ((10, 20, 30, 40), moved(10, 35), [("remove", 10), ("add", 30)], [20, 30]),
        ((10, 20, 30, 40), moved(10, 45), [("remove", 10), ("add", 30)], [20, 30]),
    ],
)
def test_a_window_of_two_stays_the_first_two(
    kind: SourceKind, ranks: tuple[int, ...], change: SourceChange, expected: list[Any], window: list[int]
) -> None:
    world, taking = taken(kind, 2, *ranks)
    assert said(world, change) == expected
    assert [node.row[2] for node in taking.fetch(Request())] == window  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (add(("r5", "u", 5)), [("remove", 10), ("add", 5)]),
        (remove(("r10", "u", 10)), [("remove", 10), ("add", 20)]),
        (moved(10, 5), [("edit", 5)]),
        (moved(10, 15), [("edit", 15)]),
        (moved(10, 25), [("remove", 10), ("add", 20)]),
        (moved(20, 5), [("remove", 10), ("add", 5)]),
    ],
)
def test_a_window_of_one(kind: SourceKind, change: SourceChange, expected: list[Any]) -> None:
    world, _ = taken(kind, 1, 10, 20)
    assert said(world, change) == expected


def test_the_displaced_row_is_gone_before_the_new_one_is_seen(kind: SourceKind) -> None:
    world, window = taken(kind, 2, 10, 20)
    seen: list[list[str]] = []
    window.set_output(lambda change: seen.append(keys(window)))
    world.source("issue").push(add(("r5", "u", 5)))
    assert seen == [["r10"], ["r5", "r10"]]


def test_one_fetch_refills_the_window_for_many_removals() -> None:
    log: list[Message] = []
    world = World("memory", issue=ranked(*range(100)))
    window = take(world, 3, log=log)
    keys(window)
    log.clear()
    for rank in range(RESERVE):
        assert said(world, remove((f"r{rank}", "u", rank))) == [("remove", rank), ("add", rank + 3)]
    assert [message for message in log if message[1] == "fetch"] == [("input", "fetch", {"after": ("r2", "u", 2)})]


# Partitions


def test_each_partition_has_its_own_window(kind: SourceKind) -> None:
    world = World(kind, issue=[*ranked(10, 20, 30), *ranked(11, 21, owner="v")])
    window = take(world, 2, BY_OWNER)
    assert keys(window, Request(BY_OWNER, "u")) == ["r10", "r20"]
    assert said(world, add(("x", "v", 1))) == []
    assert keys(window, Request(BY_OWNER, "v")) == ["x", "r11"]
    assert said(world, remove(("r10", "u", 10))) == [("remove", 10), ("add", 30)]
    assert said(world, remove(("r11", "v", 11))) == [("remove", 11), ("add", 21)]


def test_a_row_that_changes_partition_leaves_one_and_enters_the_other(kind: SourceKind) -> None:
    world = World(kind, issue=[*ranked(10, 20), *ranked(15, owner="v")])
    window = take(world, 1, BY_OWNER)
    assert [keys(window, Request(BY_OWNER, owner)) for owner in ("u", "v")] == [["r10"], ["r15"]]
    change = edit(("r10", "v", 10), ("r10", "u", 10))
    assert said(world, change) == [("remove", 10), ("add", 20), ("remove", 15), ("add", 10)]


def test_other_requests_see_what_is_in_some_window(kind: SourceKind) -> None:
    world = World(kind, issue=[*ranked(10, 20), *ranked(11, 21, owner="v")])
    window = take(world, 1, BY_OWNER)
    assert keys(window) == []
    keys(window, Request(BY_OWNER, "u"))
    assert keys(window) == ["r10"]
    assert keys(window, Request(("id",), "r20")) == []
    assert keys(window, Request(BY_OWNER, None)) == []


# At random


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_window_is_the_first_rows(seed: int) -> None:
    draw = random.Random(seed)
    limit = draw.choice([1, 2, 5, 40])
    world = World("memory", issue=ranked(*range(0, 300, 3)))
    rows = {row[0]: row for row in ranked(*range(0, 300, 3))}
    window = take(world, limit)
    keys(window)
    out = set(sorted((row[2], row[0]) for row in rows.values())[:limit])
    for number in range(600):
        for message in world.push("issue", random_change(draw, rows, number)):
            row = message[1]
            if message[0] == "edit":
                out.remove((message[2][2], message[2][0]))
                out.add((row[2], row[0]))
            elif message[0] == "add":
                out.add((row[2], row[0]))
            else:
                out.remove((row[2], row[0]))
            assert len(out) <= limit
        first_rows = sorted((row[2], row[0]) for row in rows.values())[:limit]
        assert sorted(out) == first_rows
        assert keys(window) == [key for _, key in first_rows]


def random_change(draw: random.Random, rows: dict[str, Row], number: int) -> SourceChange:
    choice = draw.random()
    if choice < 0.25 or not rows:
        row: Row = (f"n{number}", "u", draw.randrange(300))
        rows[row[0]] = row
        return add(row)
    old = draw.choice(sorted(rows.values(), key=lambda row: row[2])[: draw.choice([3, 50, 1000])])
    if choice < 0.6:
        del rows[old[0]]
        return remove(old)
    new = rows[old[0]] = (old[0], "u", draw.choice([old[2], draw.randrange(300)]))
    return edit(new, old)
