"""Queries that would take minutes: nobody else waits for them, and they end when they should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from protocol.sync.ast_json import parse
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.view_syncer.pipelines.driver import Pipelines
from reference_cache.view_syncer.pipelines.slow_start import SlowStart
from reference_cache.view_syncer.pipelines.stepped_thread import SteppedThread
from reference_cache.zql.ivm.effort import Overrun
from tests.reference_cache.view_syncer.clients import Client, named
from tests.reference_cache.view_syncer.conftest import Setup, equals, issue, related

ROWS = 500


def same_owner(**more: Any) -> dict[str, Any]:
    return related("issue", "owner", "owner", **more)


MONSTER: dict[str, Any] = {"table": "issue", "related": [same_owner(related=[same_owner()])]}
"""Every row hangs on every other, twice: with 500 rows of one owner 125 million are reached."""


class Lag:
    """The longest time that the event loop was kept, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.beats = 0

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.beats += 1
            self.longest = max(self.longest, time.perf_counter() - began)


@asynccontextmanager
async def lag() -> AsyncIterator[Lag]:
    found = Lag()
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()


async def fill(setup: Setup, rows: int = ROWS) -> None:
    await setup.commit(*(("put", "issue", issue(str(number))) for number in range(rows)))


async def until_aside(setup: Setup) -> None:
    slow: SlowStart = setup.syncer._services.pipelines._slow
    async with asyncio.timeout(20):
        while not any(each.aside for each in slow._starting.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_commits_and_other_clients_do_not_wait_for_a_query_that_takes_minutes(setup: Setup) -> None:
    setup.app.queries["monster"] = MONSTER
    await fill(setup)
    healthy, eve = Client("ann", "g1"), Client("eve", "g2")
    await healthy.connect(setup.syncer, [named("bobs")])
    attack = asyncio.create_task(eve.connect(setup.syncer, [named("monster")]))
    async with lag() as loop:
        await until_aside(setup)
        for number in range(5):
            began = time.perf_counter()
            await setup.commit(("put", "issue", issue(f"bob {number}", "bob")))
            assert time.perf_counter() - began < 3
        assert len(healthy.rows) == 5
        other = Client("cid", "g3")
        await other.connect(setup.syncer, [named("open")])
        assert len(other.rows) == ROWS + 5
        assert not attack.done()
        eve.is_open = False
        with pytest.raises(SyncError, match="No client waits"):
            await attack
    assert loop.beats > 5
    assert loop.longest < 2
    assert setup.syncer._services.pipelines._slow._starting == {}


async def test_a_query_over_its_time_or_rows_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.options = replace(setup.options, hydration_seconds=0.4)
    setup.app.queries["monster"] = MONSTER
    await setup.start_again()
    await fill(setup)
    with pytest.raises(SyncError, match=r"takes longer than 0.4 s.*CHANGESOURCE_CACHE_HYDRATION_SECONDS") as too_long:
        await Client("eve", "g1").connect(setup.syncer, [named("all"), named("monster")])
    assert too_long.value.kind is ErrorKind.INTERNAL
    setup.options = replace(setup.options, hydration_seconds=60.0, hydration_rows=1000)
    await setup.restart()
    with pytest.raises(SyncError, match=r"more than 1000 rows.*CHANGESOURCE_CACHE_HYDRATION_ROWS"):
        await Client("eve", "g2").connect(setup.syncer, [named("monster")])
    pipelines = setup.syncer._services.pipelines
    assert pipelines.live == {}
    sources = [each.engine.source(table) for each in pipelines._evaluations.values() for table in each.stores]
    assert [list(source.connections) for source in sources] == [[] for _ in sources]
    await setup.syncer.stop()


async def test_the_syncer_stops_at_once_in_the_middle_of_a_hydration(setup: Setup) -> None:
    setup.app.queries["monster"] = MONSTER
    await fill(setup)
    attack = asyncio.create_task(Client("eve", "g1").connect(setup.syncer, [named("monster")]))
    await until_aside(setup)
    began = time.perf_counter()
    await setup.syncer.stop()
    with pytest.raises(SyncError):
        await attack
    assert time.perf_counter() - began < 5
    await setup.start_again()


async def test_a_query_is_hydrated_once_for_all_who_wait_and_has_what_was_committed_meanwhile(setup: Setup) -> None:
    setup.app.queries["pairs"] = {"table": "issue", "related": [same_owner()]}
    await fill(setup, 150)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Pipelines, "_start_soon", _never_soon)
        clients = [Client(f"c{number}", f"g{number}") for number in range(3)]
        joins = [asyncio.create_task(each.connect(setup.syncer, [named("pairs")])) for each in clients]
        await until_aside(setup)
        for number in range(10):
            await setup.commit(("put", "issue", issue(f"new {number}")), ("del", "issue", issue(str(number))))
        await asyncio.gather(*joins)
    assert len(setup.syncer._services.pipelines.live) == 1
    await setup.commit(("put", "issue", issue("last")))
    everything = {key for key in setup.world.everything() if key[0] == "issue"}
    assert [set(each.rows) == everything for each in clients] == [True, True, True]


async def _never_soon(*_: object) -> None:
    return None


async def test_a_change_that_takes_too_long_in_one_query_stops_that_query_alone(setup: Setup) -> None:
    setup.app.queries["cheap"] = MONSTER
    await setup.commit(*(("put", "issue", issue(str(number), f"owner {number}")) for number in range(1500)))
    healthy, eve = Client("ann", "g1"), Client("eve", "g2")
    await healthy.connect(setup.syncer, [named("anns")])
    await eve.connect(setup.syncer, [named("cheap")])
    async with lag() as loop:
        # From now on every row hangs on every other, which takes minutes to say.
        changes = [("put", "issue", issue(str(number), "ann")) for number in range(1500)]
        began = time.perf_counter()
        await setup.commit(*changes)
        assert time.perf_counter() - began < 20
    assert loop.longest < 3
    assert [error.kind for error in eve.errors] == [ErrorKind.REHOME]
    assert healthy.errors == []
    assert len(healthy.rows) == 1500


async def test_the_event_loop_runs_while_a_sqlite_statement_does(setup: Setup) -> None:
    pipelines = setup.syncer._services.pipelines
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600000) SELECT count(*) FROM n"
    aside = pipelines.aside(parse({"table": "issue"}), (), pipelines._slow._turns, lambda: True)
    async with lag() as loop:
        rows = await aside.run(lambda: aside._snapshots.current.execute(count).fetchone())
    aside.close()
    assert rows == (600000,)
    assert loop.beats > 2


def test_work_in_a_stepped_thread_pauses_anywhere_and_can_be_stopped() -> None:
    def work() -> str:
        seen.append("begun")
        thread.pause()
        seen.append("gone on")
        return "done"

    seen: list[str] = []
    thread = SteppedThread(work)
    assert seen == []
    assert not thread.step()
    assert seen == ["begun"]
    assert thread.step()
    assert thread.result == "done"
    seen.clear()
    thread = SteppedThread(work)
    thread.step()
    thread.stop(Overrun("enough"))
    with pytest.raises(Overrun, match="enough"):
        _ = thread.result
    assert seen == ["begun"]


async def test_a_large_query_is_compiled_in_the_background_and_runs(setup: Setup) -> None:
    conditions = [equals("rank", number) for number in range(1500)]
    setup.app.queries["large"] = {"table": "issue", "where": {"type": "or", "conditions": conditions}}
    await fill(setup, 10)
    client = Client("ann", "g1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Pipelines, "_start_soon", _must_not_start_soon)
        await client.connect(setup.syncer, [named("large")])
    await setup.commit(("put", "issue", issue("more", rank=1499)), ("put", "issue", issue("less", rank=1500)))
    assert len(client.rows) == 11


async def _must_not_start_soon(*_: object) -> None:
    raise AssertionError("a large query was compiled while others wait")


async def test_many_queries_of_one_client_leave_turns_to_others(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    # Every slice is used up at once: a turn for the others at every place where one is offered.
    setup.options = replace(setup.options, time_slice=0.0)
    queries = {f"q{number}": {"table": "issue", "where": equals("rank", number)} for number in range(150)}
    setup.app.queries |= queries
    await setup.start_again()
    await fill(setup, 200)
    hydrated: list[int] = []  # at each turn of the others

    async def others() -> None:
        while True:
            hydrated.append(len(setup.syncer._services.pipelines.live))
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await Client("ann", "g1").connect(setup.syncer, [named(name) for name in queries])
    task.cancel()
    assert hydrated[-1] == 150
    assert max(later - earlier for earlier, later in pairwise(hydrated)) <= 2
    await setup.syncer.stop()
