"""The replicator over real sockets: what a source sends is in the replica, durable before it is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reference_cache.replica.replica import open_replica
from reference_cache.replica.stored_catalog import Origin, ReplicaState
from reference_cache.replicator.replicator import Replicator
from reference_cache.replicator.settings import ReplicatorSettings
from tests.reference_cache.sources import (
    ScriptedSource,
    Stage,
    begin,
    commit,
    delete,
    insert,
    play,
    snapshot,
    transaction,
    update,
)
from tests.support.fakes.tiny_source import Message
from tests.support.waiting import until

RESET: Message = ["control", {"tag": "reset-required", "message": "the log is gone"}]


class Following:
    """A replicator that runs, and what it announced."""

    def __init__(self, settings: ReplicatorSettings) -> None:
        self.path = settings.replica_file
        self.replicator = Replicator(settings)
        self.replicator.on_version(self._announced)
        self.states: list[ReplicaState] = []
        self._changed = asyncio.Event()

    def _announced(self, state: ReplicaState) -> None:
        self.states.append(state)
        self._changed.set()

    async def version(self, version: str) -> None:
        """Wait until this version is announced."""
        async with asyncio.timeout(60):
            while not any(state.version == version for state in self.states):
                self._changed.clear()
                await self._changed.wait()

    async def status(self, condition: Callable[[Replicator], bool]) -> None:
        """Wait until the status is as wanted; it sends no events."""
        await asyncio.to_thread(until, lambda: condition(self.replicator), "status of the replicator")

    def rows(self, sql: str = "SELECT id, name FROM item ORDER BY id") -> list[tuple[object, ...]]:
        connection = open_replica(self.path).connect()
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


@asynccontextmanager
async def following(source: ScriptedSource, folder: Path, **settings: object) -> AsyncIterator[Following]:
    made = Following(ReplicatorSettings(source.url, folder / "replica.db", Origin("zero"), **settings))  # type: ignore[arg-type]
    task = asyncio.create_task(made.replicator.run())
    try:
        yield made
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_initial_sync_and_what_follows_it_are_in_the_replica(tmp_path: Path) -> None:
    live = [*transaction("02", insert(2, "two"), update(1, "uno")), *transaction("03", delete(2), insert(3, "three"))]
    async with (
        ScriptedSource(play(*snapshot("01", insert(1, "one"))), play(*live)) as source,
        following(source, tmp_path) as cache,
    ):
        await cache.version("03")
        await source.until(lambda source: source.acks[-1:] == ["03"])
        assert cache.rows() == [(1, "uno"), (3, "three")]
        assert [request.last_watermark for request in source.requests] == [None, "01"]
        assert source.requests[1].replica_version == "01"


async def test_a_restart_resumes_after_the_last_durable_transaction(tmp_path: Path) -> None:
    scenes = [play(*snapshot("01")), play(*transaction("02", insert(2))), play(*transaction("03", insert(3)))]
    async with ScriptedSource(*scenes) as source:
        async with following(source, tmp_path) as cache:
            await cache.version("02")
        async with following(source, tmp_path) as cache:
            await cache.version("03")
            assert cache.states[0].version == "02", "a reader can start before the source is there"
        assert [request.last_watermark for request in source.requests] == [None, "01", "02"]


async def test_a_transaction_without_its_end_leaves_nothing(tmp_path: Path) -> None:
    async def half(stage: Stage) -> None:
        await stage.send([begin("02"), insert(2)])
        await stage.socket.close()

    scenes = [play(*snapshot("01")), half, play(*transaction("02", insert(22)))]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path) as cache:
        await cache.version("02")
        assert cache.rows() == [(22, None)]


async def test_a_large_transaction_without_its_end_leaves_nothing_either(tmp_path: Path) -> None:
    async def half(stage: Stage) -> None:
        await stage.send([begin("02"), *(insert(key, "x" * 1000) for key in range(3000))])
        await stage.socket.close()

    scenes = [play(*snapshot("01")), half, play(*transaction("02", insert(1)))]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path) as cache:
        await cache.version("02")
        assert cache.rows() == [(1, None)]


async def test_a_rolled_back_transaction_leaves_nothing_and_its_watermark_is_free(tmp_path: Path) -> None:
    rolled_back = [begin("02"), insert(1), ["rollback", {"tag": "rollback"}]]
    live = play(*rolled_back, *transaction("02", insert(2)))
    async with ScriptedSource(play(*snapshot("01")), live) as source, following(source, tmp_path) as cache:
        await cache.version("02")
        assert cache.rows() == [(2, None)]


async def test_a_transaction_that_comes_again_is_dropped_but_acknowledged(tmp_path: Path) -> None:
    again = play(*transaction("02", insert(2, "other")), *transaction("03", insert(3)))
    scenes = [play(*snapshot("01")), again]
    async with ScriptedSource(*scenes) as source:
        async with following(source, tmp_path) as cache:
            await cache.version("03")
            await source.until(lambda source: source.acks[-1:] == ["03"])
        first = len(source.acks)
        async with following(source, tmp_path) as cache:
            await source.until(lambda source: source.acks[first:][-1:] == ["03"])
            assert cache.rows() == [(2, "other"), (3, None)]


async def test_skip_ack_and_status_are_acknowledged_as_they_ask(tmp_path: Path) -> None:
    async def live(stage: Stage) -> None:
        await stage.send([begin("02", skipAck=True), insert(2), commit("02")])
        await stage.send([["status", {"ack": False}, {"watermark": "03"}], ["status", {}, {"watermark": "04"}]])
        await stage.hold()

    async with ScriptedSource(play(*snapshot("01")), live) as source, following(source, tmp_path) as cache:
        await source.until(lambda source: bool(source.acks))
        assert source.acks == ["04"]
        assert cache.states[-1].version == "02", "a status is not stored"


async def test_a_reset_replaces_the_replica_when_the_new_one_is_complete(tmp_path: Path) -> None:
    scenes = [play(*snapshot("01", insert(1))), play(RESET), play(*snapshot("05", insert(5))), play()]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path) as cache:
        await cache.version("01")
        reader = open_replica(cache.path).connect()
        reader.execute("BEGIN")
        assert reader.execute("SELECT id FROM item").fetchall() == [(1,)]
        await cache.version("05")
        assert reader.execute("SELECT id FROM item").fetchall() == [(1,)], "a reader keeps its snapshot"
        assert cache.rows() == [(5, None)]
        assert cache.states[-1].replica_version == "05"
        await source.until(lambda source: len(source.requests) == 4)
        assert source.requests[3].replica_version == "05"


async def test_with_auto_reset_off_a_reset_is_reported_and_the_stream_goes_on(tmp_path: Path) -> None:
    scenes = [play(*snapshot("01")), play(RESET, *transaction("02", insert(2)))]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path, auto_reset=False) as cache:
        await cache.version("02")
        assert cache.replicator.status().reset_required == "the log is gone"
        assert len(source.requests) == 2


async def test_the_same_snapshot_after_a_reset_is_refused(tmp_path: Path) -> None:
    scenes = [play(*snapshot("01", insert(1))), play(RESET), play(*snapshot("01", insert(2)))]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path) as cache:
        await cache.status(lambda replicator: "must send a newer one" in (replicator.status().error or ""))
        assert cache.rows() == [(1, None)]


async def test_a_change_that_does_not_fit_is_never_acknowledged_and_then_leads_to_a_reset(tmp_path: Path) -> None:
    bad = play(*transaction("02", insert(2, unknown=1)))
    scenes = [play(*snapshot("01", insert(1))), bad, bad, play(*snapshot("03", insert(3))), play()]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path) as cache:
        await cache.version("03")
        assert source.acks == []
        assert cache.rows() == [(3, None)]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (["not json"], "not JSON"),
        ([insert(1)], "data without a begin"),
        ([begin("02"), commit("03")], "commit says 03"),
        ([begin("002")], "not a LexiVersion"),
        ([["data", {"tag": "nonsense"}]], "nonsense"),
        ([begin("02"), begin("03")], "begin while"),
    ],
)
async def test_a_wrong_message_ends_the_connection_and_changes_nothing(
    tmp_path: Path, messages: list[Message | str], said: str
) -> None:
    scenes = [play(*snapshot("01", insert(1))), play(*messages), play(*transaction("02", insert(2)))]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path) as cache:
        await cache.status(lambda replicator: said in (replicator.status().error or "") or len(cache.states) > 1)
        await cache.version("02")
        assert cache.rows() == [(1, None), (2, None)]
        assert len(source.requests) == 3


async def test_an_initial_sync_without_the_apps_own_tables_is_refused(tmp_path: Path) -> None:
    async with ScriptedSource(play(*transaction("01"))) as source, following(source, tmp_path) as cache:
        await cache.status(lambda replicator: "zero_0.clients" in (replicator.status().error or ""))
        assert not cache.path.exists()


async def test_an_initial_sync_that_breaks_off_starts_over(tmp_path: Path) -> None:
    async def half(stage: Stage) -> None:
        await stage.send(snapshot("01", insert(1))[:-1])
        await stage.socket.close()

    scenes = [half, play(*snapshot("02", insert(2))), play()]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path) as cache:
        await cache.version("02")
        assert cache.rows() == [(2, None)]


async def test_intake_pauses_while_the_reader_is_behind_and_goes_on_when_it_has_read(tmp_path: Path) -> None:
    live = play(*transaction("02", *(insert(key) for key in range(2000))))
    scenes = [play(*snapshot("01")), live]
    async with ScriptedSource(*scenes) as source, following(source, tmp_path, max_logged=1500) as cache:
        await cache.version("01")
        cache.replicator.forget_changes("01")
        await cache.version("02")
        await cache.status(lambda replicator: replicator.status().phase == "paused")
        cache.replicator.forget_changes("02")
        await cache.status(lambda replicator: replicator.status().phase == "following")
        assert cache.replicator.status().logged == 0


async def test_a_second_replicator_on_the_same_file_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    scenes = [play(*snapshot("01")), play(), play(*transaction("02", insert(2)))]
    async with ScriptedSource(*scenes) as source:
        async with following(source, tmp_path) as first:
            await first.version("01")
            second = Following(ReplicatorSettings(source.url, tmp_path / "replica.db", Origin("zero")))
            task = asyncio.create_task(second.replicator.run())
            await second.status(lambda replicator: "another replicator" in (replicator.status().error or ""))
            assert second.states == []
        await second.version("02")
        assert second.replicator.status().error is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert second.rows() == [(2, None)]
