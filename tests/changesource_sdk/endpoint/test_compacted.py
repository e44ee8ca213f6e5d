"""An endpoint over a log that is compacted under it, in every store: old consumers go on, new ones get the newest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from changesource_sdk.adapter import Delete, Insert
from changesource_sdk.endpoint.stream.live_tail import LiveTail
from changesource_sdk.endpoint.stream.source import SubscriptionSource
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.observe.metrics import EndpointMetrics
from changesource_sdk.pipeline.compaction.job import compact
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.system_tables import Permissions
from changesource_sdk.testing.fake_cache import FakeCache
from protocol.stream.handshake import Handshake
from tests.changesource_sdk.endpoint.conftest import Serve
from tests.changesource_sdk.endpoint.written_state import WrittenState

SOMEONE = Handshake("shipped", "zero", 0)
EITHER_STORE = pytest.mark.parametrize("state", ["sqlite", "postgres"], indirect=True)


def compacted(state: WrittenState) -> str:
    compact(state.store, LocalLane(), lambda: 5.0)
    watermark = state.store.handoff.take(state.writer)
    assert watermark is not None
    return watermark


def issue(number: int) -> Insert:
    return Insert("issue", {"id": str(number), "title": f"issue {number}"})


def holds_issue(cache: FakeCache, key: str) -> bool:
    return key in cache.rows("issue")


@EITHER_STORE
async def test_old_and_new_consumers_hold_the_same_after_compaction(state: WrittenState, serve: Serve) -> None:
    first = state.snapshot([issue(number).row for number in range(3)])
    running = await serve()
    old = running.cache()
    await old.initial_sync()
    state.commit(issue(3), Delete("issue", {"id": "0"}))
    async with old.stream():
        await old.until(lambda: "3" in old.rows("issue"))
    watermark = compacted(state)
    assert state.writer.prune(watermark) == 1
    assert not (state.layout.spool / first).exists()
    new = running.cache(app_id="other")
    await new.initial_sync()
    assert str(new.watermark) > watermark
    assert new.rows("issue") == old.rows("issue")
    state.commit(issue(4))
    for cache in (old, new):
        async with cache.stream():
            await cache.until(partial(holds_issue, cache, "4"))
    assert old.rows("issue") == new.rows("issue")
    assert set(new.rows("issue")) == {"1", "2", "3", "4"}
    assert state.store.requests.pending_snapshot() is None


@contextmanager
def reading(state: WrittenState) -> Iterator[SubscriptionSource]:
    """What subscriptions read from, without a server around it."""
    reader, coordination = state.store.open_log(), state.store.open_coordination()
    tail = LiveTail(reader, 1 << 20, EndpointMetrics(), reads_on_loop=True)
    yield SubscriptionSource(state.store, reader, coordination, tail, Permissions())
    tail.close()
    coordination.close()


async def test_a_snapshot_under_way_is_finished_though_a_newer_one_came(state: WrittenState) -> None:
    first = state.snapshot([issue(number).row for number in range(3)])
    with reading(state) as source:
        _, chunks = source.open_initial_sync(SOMEONE, first)
        while b"issue" not in next(chunks):
            pass
        state.commit(issue(3))
        compacted(state)
        assert (state.layout.spool / first).exists(), "someone reads it"
        assert b'"commit"' in list(chunks)[-1]
        state.commit(issue(4))
        compacted(state)
        assert not (state.layout.spool / first).exists()


async def test_a_snapshot_that_was_replaced_too_soon_is_not_taken_for_damaged(state: WrittenState) -> None:
    first = state.snapshot([issue(number).row for number in range(3)])
    with reading(state) as source:
        _, chunks = source.open_initial_sync(SOMEONE, first)
        state.commit(issue(3))
        compacted(state)
        with pytest.raises(SnapshotGone) as gone:
            list(chunks)
        assert gone.value.code == "snapshot-replaced"
        await source.mend(first, gone.value)
        assert state.store.requests.pending_snapshot() is None
