"""Streams end to end: a written log, a real endpoint, a consumer that keeps the rules."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from websockets.exceptions import ConnectionClosed

from changesource_sdk.adapter import Delete, Insert, Update
from changesource_sdk.changelog.coordination.consumers import ConsumerKey
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.recovery import snapshot_due
from changesource_sdk.testing.fake_cache import FakeCache, ResetAsked
from protocol import watermark as watermarks
from protocol.rules import check
from tests.changesource_sdk.endpoint.conftest import Serve
from tests.changesource_sdk.endpoint.written_state import WrittenState

pytestmark = pytest.mark.parametrize("state", ["sqlite", "postgres"], indirect=True)


async def test_initial_sync_then_live_changes_without_a_gap(state: WrittenState, serve: Serve) -> None:
    state.snapshot([{"id": "1", "title": "one"}])
    running = await serve()
    cache = running.cache()
    await cache.initial_sync()
    assert cache.rows("issue") == {"1": {"id": "1", "title": "one"}}
    state.insert("2", "between the two connections")
    async with cache.stream():
        await cache.until(lambda: "2" in cache.rows("issue"))
        state.commit(Update("issue", {"id": "1", "title": "uno"}), Delete("issue", {"id": "2"}))
        await cache.transactions(1)
    assert cache.rows("issue") == {"1": {"id": "1", "title": "uno"}}
    assert check(cache.transcript) == []


async def test_system_tables_belong_to_the_app_and_shard_that_ask(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve(permissions="allow-all")
    one, other = running.cache(), running.cache(app_id="shop", shard_num=3)
    await asyncio.gather(one.initial_sync(), other.initial_sync())
    assert one.rows("zero.permissions")[True]["hash"]
    assert other.rows("shop.permissions")[True]["hash"]
    assert check(one.transcript) == check(other.transcript) == []


async def test_sketch_consumer_gets_snapshot_and_changes_on_one_connection(state: WrittenState, serve: Serve) -> None:
    state.snapshot([{"id": "1", "title": "one"}])
    running = await serve()
    cache = running.cache(dialect="sketch")
    async with cache.stream():
        await cache.transactions(1)
        state.insert("2")
        await cache.transactions(1)
    assert set(cache.rows("issue")) == {"1", "2"}
    assert check(cache.transcript) == []


async def test_initial_sync_waits_for_the_first_snapshot(state: WrittenState, serve: Serve) -> None:
    running = await serve()
    cache = running.cache()
    async with cache.stream():
        watermark = state.snapshot([{"id": "1", "title": "late"}])
        await cache.transactions(1)
    assert cache.replica_version is not None
    assert cache.replica_version > watermark
    assert set(cache.rows("issue")) == {"1"}


async def test_resumed_stream_sends_only_what_follows(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve()
    cache = running.cache()
    await cache.initial_sync()
    watermarks = [state.insert(str(number)) for number in range(5)]
    async with cache.stream():
        await cache.transactions(3)
    resumed_after = cache.watermark
    before = len(cache.commits)
    async with cache.stream():
        await cache.until(lambda: cache.watermark == watermarks[-1])
    assert all(commit > str(resumed_after) for commit in cache.commits[before:])
    assert cache.commits[1:] == watermarks


async def test_large_transaction_streams_from_its_segment(
    tmp_path_factory: pytest.TempPathFactory, serve: Serve, state: WrittenState
) -> None:
    state.snapshot()
    state._spill_bytes = 100_000
    state._encoder = state._new_encoder()
    running = await serve()
    cache = running.cache()
    await cache.initial_sync()
    state.insert("before")
    state.commit(*(Insert("issue", {"id": f"{number}", "title": "x" * 500}) for number in range(2000)))
    state.insert("after")
    async with cache.stream():
        await cache.transactions(3)
    assert len(cache.rows("issue")) == 2002
    if isinstance(state.store, SqliteLogStore):
        assert list(state.layout.segments.iterdir())


async def test_consumer_that_fell_out_of_the_shared_tail_reads_the_log(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve(tail_bytes=1)
    cache = running.cache()
    await cache.initial_sync()
    async with cache.stream():
        for round_number in range(10):
            state.commit_all([[Insert("issue", {"id": f"{round_number}-{n}", "title": "t"})] for n in range(20)])
            await cache.transactions(20)
    assert len(cache.rows("issue")) == 200


async def test_unknown_replica_is_told_to_reset_and_the_next_snapshot_is_above_it(
    state: WrittenState, serve: Serve
) -> None:
    state.snapshot()
    running = await serve()
    cache = running.cache()
    await cache.initial_sync()
    first = str(cache.replica_version)
    state.insert("1")
    async with cache.stream():
        await cache.transactions(1)
        second = state.snapshot([{"id": "9", "title": "anew"}])
        with pytest.raises(ResetAsked, match=first):
            await cache.until(lambda: False)
    assert state.store.requests.pending_snapshot() is None, "the new snapshot is above all this consumer saw"
    await cache.initial_sync()
    assert str(cache.replica_version) > second
    assert set(cache.rows("issue")) == {"9"}


@pytest.mark.parametrize("claimed", ["z" + "z" * 36, "b" + "z" * 12])
async def test_a_watermark_that_was_never_sent_resets_only_the_consumer_that_claims_it(
    state: WrittenState, serve: Serve, claimed: str
) -> None:
    state.snapshot([{"id": "1", "title": "one"}])
    running = await serve()
    honest, liar = running.cache(), running.cache(app_id="liar")
    await honest.initial_sync()
    await liar.initial_sync()
    liar._session.last_watermark = claimed
    async with liar.stream():
        with pytest.raises(ResetAsked, match="newer than"):
            await liar.until(lambda: False)
    assert state.store.requests.pending_snapshot() is None
    assert state.store.open_coordination().consumers("liar", 0)[-1].acknowledged < claimed
    after = state.insert("2")
    async with honest.stream():
        await honest.until(lambda: honest.watermark == after)
    await liar.initial_sync()
    assert set(liar.rows("issue")) == {"1", "2"}


async def test_a_log_that_lost_what_was_sent_asks_for_a_snapshot_above_it(state: WrittenState, serve: Serve) -> None:
    """As after a log was restored from an older copy: the record of consumers proves how far it had been."""
    state.snapshot()
    running = await serve()
    cache = running.cache()
    await cache.initial_sync()
    future = watermarks.from_int(time.time_ns() // 1000 + 10**9)
    coordination = state.store.open_coordination()
    coordination.acknowledge(ConsumerKey("zero", 0, str(cache.replica_version)), future, time.time() * 1000)
    coordination.close()
    cache._session.durable(future)
    async with cache.stream():
        with pytest.raises(ResetAsked, match="newer than"):
            await cache.until(lambda: False)
    request = state.store.requests.pending_snapshot()
    assert request is not None
    assert request.above == future
    syncing = asyncio.create_task(cache.initial_sync())
    assert snapshot_due(state.store, state.writer) == future
    state.snapshot([{"id": "1", "title": "new"}], above=future)
    await syncing
    assert str(cache.replica_version) > future


def has_reached(cache: FakeCache, watermark: str) -> bool:
    return cache.watermark == watermark


def holds_issue(cache: FakeCache, key: str) -> bool:
    return key in cache.rows("issue")


async def test_every_initial_sync_is_above_all_that_was_sent_and_shows_the_head(
    state: WrittenState, serve: Serve
) -> None:
    state.snapshot([{"id": "1", "title": "one"}, {"id": "2", "title": "two"}])
    running, other_endpoint = await serve(), await serve()
    versions: list[str] = []
    for round_number in range(3):
        state.commit(
            Insert("issue", {"id": f"n{round_number}", "title": ""}), Delete("issue", {"id": str(round_number)})
        )
        for endpoint in (running, other_endpoint, await serve()):
            cache = endpoint.cache()
            await cache.initial_sync()
            assert set(cache.rows("issue")) == {"1", "2", "n0", "n1", "n2"} - {
                *(f"n{later}" for later in range(round_number + 1, 3)),
                *(str(gone) for gone in range(round_number + 1)),
            }
            assert check(cache.transcript) == []
            versions.append(str(cache.replica_version))
        last = state.insert(f"live {round_number}")
        async with cache.stream():
            await cache.until(partial(has_reached, cache, last))
        versions.append(last)
        state.commit(Delete("issue", {"id": f"live {round_number}"}))
    assert versions == sorted(set(versions))


async def test_every_version_that_was_issued_can_resume(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve()
    caches = []
    for number in range(4):
        state.insert(str(number))
        caches.append(running.cache())
        await caches[-1].initial_sync()
    state.insert("last")
    for cache in caches:
        async with cache.stream():
            await cache.until(partial(holds_issue, cache, "last"))
        assert set(cache.rows("issue")) == {"0", "1", "2", "3", "last"}


async def test_a_version_issued_to_another_app_is_reset(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    running = await serve()
    one, other = running.cache(), running.cache(app_id="other")
    await one.initial_sync()
    await other.initial_sync()
    other._session.replica_version = one.replica_version
    async with other.stream():
        with pytest.raises(ResetAsked, match="no initial sync"):
            await other.until(lambda: False)


async def test_a_large_transaction_is_part_of_an_initial_sync(state: WrittenState, serve: Serve) -> None:
    state.snapshot()
    state._spill_bytes = 100_000
    state._encoder = state._new_encoder()
    state.insert("before")
    state.commit(*(Insert("issue", {"id": f"{number}", "title": "x" * 500}) for number in range(2000)))
    state.insert("after")
    cache = (await serve()).cache()
    await cache.initial_sync()
    assert len(cache.rows("issue")) == 2002


async def test_a_damaged_snapshot_is_never_completed_and_a_new_one_is_asked_for(
    state: WrittenState, serve: Serve
) -> None:
    watermark = state.snapshot({"id": str(number), "title": "t"} for number in range(100))
    part = state.layout.spool / watermark / "part-00001.frames"
    part.write_bytes(part.read_bytes().replace(b'"title":"t"', b'"title":"u"', 1))
    running = await serve()
    cache = running.cache()
    with pytest.raises(ConnectionClosed) as caught:
        await cache.initial_sync()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1013
    assert cache.commits == []
    request = state.store.requests.pending_snapshot()
    assert request is not None
    assert request.above == watermark
    async with cache.stream():
        newer = state.snapshot([{"id": "1", "title": "whole"}], above=request.above)
        await cache.transactions(1)
    assert str(cache.replica_version) > newer


async def test_a_log_that_is_lost_while_serving_leads_to_one_reset_with_a_higher_watermark(
    state: WrittenState, serve: Serve
) -> None:
    first = state.snapshot()
    running = await serve()
    cache = running.cache()
    await cache.initial_sync()
    async with cache.stream():
        state.insert("1")
        await cache.transactions(1)
        state.close()
        assert state.store.set_aside()
        again = WrittenState(state.store)
        second = again.snapshot([{"id": "2", "title": "from the store"}])
        with pytest.raises(ResetAsked):
            await cache.until(lambda: False)
    await cache.initial_sync()
    again.close()
    assert str(cache.replica_version) > second > first
    assert set(cache.rows("issue")) == {"2"}
