"""What runs beside the streams: pruning asks for no more than nobody needs, and a failing task is tried again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest

from changesource_sdk.changelog.coordination.consumers import ConsumerKey
from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.changelog.sqlite.log import SqliteLog
from changesource_sdk.changelog.sqlite.wakeup import WakeupSender
from changesource_sdk.endpoint import upkeep
from changesource_sdk.endpoint.upkeep import LogWakeups, Pruner, persistently
from changesource_sdk.errors import DiskFull
from service_kit.logs import Throttle
from tests.changesource_sdk.endpoint.written_state import WrittenState


@pytest.fixture
def coordination(state: WrittenState) -> Iterator[Coordination]:
    store = state.store.open_coordination()
    yield store
    store.close()


def pruner(state: WrittenState, coordination: Coordination) -> Pruner:
    return Pruner(state.store.requests, state.store.open_log(), coordination, interval=1.0, expiry=3600.0)


def test_nothing_to_prune_before_and_at_a_snapshot(state: WrittenState, coordination: Coordination) -> None:
    assert pruner(state, coordination).prune() is None
    state.snapshot()
    state.insert("1")
    assert pruner(state, coordination).prune() is None
    assert state.store.requests.take_prune() is None


@pytest.mark.parametrize(("heard_ago_s", "holds"), [(0.0, True), (7200.0, False)])
def test_live_consumers_hold_the_log_back_and_absent_ones_do_not(
    state: WrittenState, coordination: Coordination, heard_ago_s: float, holds: bool
) -> None:
    first = state.snapshot()
    acknowledged = state.insert("1")
    newest = state.insert("2")
    # A compacted snapshot of the same generation: what is below it is needed only by those who have less.
    copy = "INSERT INTO snapshots SELECT ?, generation, position, schema, directory, created_ms FROM snapshots"
    log = state.writer._log
    assert isinstance(log, SqliteLog)
    assert log._connection is not None
    log._connection.execute(copy, (newest,))
    now_ms = time.time() * 1000
    coordination.acknowledge(ConsumerKey("zero", 0, first), acknowledged, now_ms - heard_ago_s * 1000)
    expected = acknowledged if holds else newest
    assert pruner(state, coordination).prune() == expected
    assert state.store.requests.take_prune() == expected


async def test_a_failing_task_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    tries = asyncio.Queue[int]()

    async def failing() -> None:
        tries.put_nowait(1)
        raise DiskFull("disk-full", "no room", fix="make room")

    log = logging.getLogger("tests.upkeep")
    with caplog.at_level(logging.ERROR, logger="tests.upkeep"):
        task = asyncio.create_task(persistently("acks", failing, log, Throttle(60.0)))
        for _ in range(2):
            await asyncio.wait_for(tries.get(), 60)
        task.cancel()
    assert [record.getMessage() for record in caplog.records] == ["acks failed, trying again"]


async def test_a_wake_up_that_comes_while_nobody_waits_is_not_lost(
    state: WrittenState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SAFETY_POLL_S", 3600.0)
    wakeups = LogWakeups(state.store.listen())
    sender = WakeupSender(state.layout.pokes)
    sender.send()
    await asyncio.wait_for(wakeups.wait(), 60)
    wakeups.close()
    sender.close()
