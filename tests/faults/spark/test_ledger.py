"""Mutations of a store that cannot hold confirmations, with the pipeline on Spark: none is confirmed before its data.

A confirmation takes the client's guess away. So what a client shows once a mutation is confirmed is what the store
said, also when the driver or the task was killed in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reference_cache.app_server import Mutators
from reference_cache.app_server.stores.ledger import LedgerStore, LedgerTransaction
from reference_cache.client import Client, LiveView, Transaction, named_query
from tests.support.apps.journal_store import Journal
from tests.support.apps.schema import TRACKER
from tests.support.apps.server import AppServer, ByOwner, SetTitle, open_by_owner
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing, kill
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.e2e, pytest.mark.timeout(1200)]

LAG_SECONDS = 0.3
SECONDS = 600.0
mutators = Mutators()


@mutators.define("issue.setTitle")
async def set_title(tx: LedgerTransaction[Journal], args: SetTitle) -> None:
    """The server's own idea of the title, so that it cannot be taken for the client's guess."""
    tx.wrote_at(tx.target.append({"id": args.id, "title": f"{args.title}, written"}))


def guess(tx: Transaction, args: dict[str, Any]) -> None:
    tx.update("issues", args)


@dataclass(frozen=True, slots=True)
class World:
    """An endpoint on Spark that follows a journal and its ledger, and our cache."""

    endpoint: SparkServing
    cache: ReferenceCache


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    journal = Journal(tmp_path / "journal")
    journal.append({"id": "i1", "title": "old", "open": True, "owner_id": "u1", "modified": 1})
    with ExitStack() as stack:
        ledger = LedgerStore(tmp_path / "ledger.db", journal)
        app = stack.enter_context(AppServer(ledger, "ann-token", mutators=mutators))
        settings = {"path": str(journal.path), "lag": str(LAG_SECONDS)}
        options = ("--ledger", str(tmp_path / "ledger.db"))
        adapter = "tests.support.apps.journal_store:JournalAdapter"
        endpoint = stack.enter_context(SparkServing(adapter, settings, tmp_path / "state", options=options))
        stack.callback(lambda: print(endpoint.process.tail(60)))
        endpoint.start(seconds=SPARK_SECONDS)
        cache = stack.enter_context(ReferenceCache(endpoint.stream_url, tmp_path, settings=app.settings)).start()
        yield World(endpoint, cache)


def title(view: LiveView) -> str:
    """What the client shows of the only issue."""
    assert isinstance(view.result, list)
    return str(view.result[0]["title"])


def strike(endpoint: SparkServing, part: str) -> None:
    """Kill the driver or the task of the pipeline, as soon as there is one."""
    found = until(endpoint.driver if part == "driver" else endpoint.task, f"a {part} to kill", seconds=SPARK_SECONDS)
    assert found is not None
    kill(found)


async def test_a_confirmed_mutation_shows_what_the_store_has_whatever_was_killed(world: World) -> None:
    mine = named_query("openByOwner", lambda args: open_by_owner(ByOwner(**args)))({"owner": "u1"})
    async with (
        asyncio.timeout(SECONDS),
        Client(world.cache.url, TRACKER, mutators={"issue.setTitle": guess}, user_id="ann", auth="ann-token") as client,
    ):
        view = client.query(mine)
        await view.complete()
        for number, part in enumerate(["", "", "task", "driver", ""]):
            mutation = client.mutate["issue.setTitle"]({"id": "i1", "title": f"title {number}"})
            assert title(view) == f"title {number}"
            if part:
                await asyncio.to_thread(strike, world.endpoint, part)
            await mutation
            assert title(view) == f"title {number}, written"
