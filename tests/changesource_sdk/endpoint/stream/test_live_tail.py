"""The shared tail: no gap, bounded bytes, and a log that starts over is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from changesource_sdk.adapter import Insert
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.sqlite.log import SqliteLog
from changesource_sdk.endpoint.stream.live_tail import LiveTail
from changesource_sdk.observe.metrics import EndpointMetrics
from tests.changesource_sdk.endpoint.written_state import WrittenState


@pytest.fixture
def reader(state: WrittenState) -> Iterator[SqliteLog]:
    opened = SqliteLog(StateDirectory(state.directory))
    yield opened
    opened.close()


@pytest.fixture
def new_tail(reader: SqliteLog) -> Iterator[Callable[..., LiveTail]]:
    made: list[LiveTail] = []

    def make(limit: int = 1 << 20, metrics: EndpointMetrics | None = None) -> LiveTail:
        made.append(LiveTail(reader, limit, metrics or EndpointMetrics(), reads_on_loop=True))
        return made[-1]

    yield make
    for tail in made:
        tail.close()


def watermarks(tail: LiveTail, after: str) -> list[str] | None:
    found = tail.after(after)
    return None if found is None else [stored.watermark for stored in found]


async def test_holds_what_came_since_someone_follows(
    state: WrittenState, reader: SqliteLog, new_tail: Callable[..., LiveTail]
) -> None:
    snapshot = state.snapshot()
    missed = state.insert("before anyone follows")
    tail = new_tail()
    await tail.advance()
    with tail.following():
        held = [state.insert(str(number)) for number in range(3)]
        await tail.advance()
        assert watermarks(tail, missed) == held
        assert watermarks(tail, held[1]) == held[2:]
        assert watermarks(tail, held[-1]) == []
        assert watermarks(tail, snapshot) is None, "what came before was never held"


async def test_old_transactions_are_let_go_beyond_the_limit(
    state: WrittenState, reader: SqliteLog, new_tail: Callable[..., LiveTail]
) -> None:
    state.snapshot()
    tail = new_tail(50_000)
    await tail.advance()
    with tail.following():
        start = tail.head
        for number in range(20):
            state.commit(*(Insert("issue", {"id": f"{number}-{n}", "title": "x" * 100}) for n in range(50)))
            await tail.advance()
        assert watermarks(tail, start) is None
        held = tail.after(tail._floor)
        assert held
        assert sum(stored.size for stored in held) <= 50_000
        assert held[-1].watermark == tail.head == reader.state().head


async def test_nothing_is_read_while_nobody_follows(
    state: WrittenState, reader: SqliteLog, new_tail: Callable[..., LiveTail]
) -> None:
    state.snapshot()
    metrics = EndpointMetrics()
    tail = new_tail(metrics=metrics)
    newest = state.insert("1")
    await tail.advance()
    assert tail.head == newest
    assert metrics.registry.get_sample_value("changesource_tail_transactions_total") == 0


async def test_a_new_generation_starts_a_new_lineage(
    state: WrittenState, reader: SqliteLog, new_tail: Callable[..., LiveTail]
) -> None:
    state.snapshot()
    tail = new_tail()
    await tail.advance()
    lineage = tail.lineage
    with tail.following():
        old = state.insert("1")
        await tail.advance()
        assert tail.lineage == lineage
        state.snapshot()
        newest = state.insert("2")
        await tail.advance()
        assert tail.lineage == lineage + 1
        assert watermarks(tail, old) is None
        assert tail.head == newest
