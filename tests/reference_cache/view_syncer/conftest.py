"""A syncer over a small replica, both in one temporary folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference_cache.view_syncer.api import SyncerOptions
from reference_cache.view_syncer.syncer import ViewSyncer
from tests.reference_cache.view_syncer.clients import App
from tests.reference_cache.view_syncer.world import World


def equals(column: str, value: Any) -> dict[str, Any]:
    return {
        "type": "simple",
        "op": "=",
        "left": {"type": "column", "name": column},
        "right": {"type": "literal", "value": value},
    }


def related(table: str, parent: str, child: str, **more: Any) -> dict[str, Any]:
    return {
        "correlation": {"parentField": [parent], "childField": [child]},
        "system": "client",
        "subquery": {"table": table, "alias": table, **more},
    }


QUERIES: dict[str, Any] = {
    "all": {"table": "issue"},
    "anns": {"table": "issue", "where": equals("owner", "ann")},
    "bobs": {"table": "issue", "where": equals("owner", "bob")},
    "open": {"table": "issue", "where": equals("open", True)},
    "top": {"table": "issue", "orderBy": [["rank", "desc"]], "limit": 2},
    "talk": {
        "table": "issue",
        "where": equals("owner", "ann"),
        "related": [related("comment", "id", "issue"), related("label", "id", "issue")],
    },
    "labelled": {
        "table": "issue",
        "where": {"type": "correlatedSubquery", "op": "EXISTS", "related": related("label", "id", "issue")},
    },
    "comments": {"table": "comment", "orderBy": [["text", "asc"]], "limit": 3},
}


def issue(id: str, owner: str = "ann", rank: float = 1, **more: Any) -> dict[str, Any]:
    return {"id": id, "owner": owner, "open": True, "rank": rank, "extra": None, **more}


class Setup:
    """The files, the application, and the syncer that runs at the moment."""

    def __init__(self, folder: Path, time_slice: float = 0.01) -> None:
        self.world = World(folder / "replica.db")
        self.app = App(QUERIES)
        self.time = 0.0
        self.options = SyncerOptions(
            folder / "replica.db", folder / "cvr.db", linger=0.0, clock=lambda: self.time, time_slice=time_slice
        )
        self.syncer = ViewSyncer(self.options, self.app)

    async def commit(self, *changes: Any) -> None:
        """Commit a transaction, and wait until all clients have been sent it."""
        version = self.world.commit(*changes)
        self.syncer.notify()
        await self.syncer.reached(version)

    async def settled(self) -> None:
        """Wait until the syncer's background tasks have ended."""
        working = [task for task in self.syncer._services.tasks if task not in self._permanent]
        await asyncio.gather(*working)

    async def evict_expired(self) -> None:
        """Drop all expired queries, without waiting for the groups' own timers."""
        for group in list(self.syncer._groups.values()):
            await group.evict_expired()

    def forget_after(self, seconds: float) -> None:
        """Make the next syncer delete what is older than this; a negative number deletes everything."""
        self.options = replace(self.options, forget_groups_after=seconds)

    async def restart(self) -> None:
        await self.syncer.stop()
        await self.start_again()

    async def crash(self) -> None:
        """End as a killed process does: nothing more is written."""
        services = self.syncer._services
        for task in services.tasks:
            task.cancel()
        services.pipelines.close()
        services.file.close()
        await self.start_again()

    async def start_again(self) -> None:
        self.syncer = ViewSyncer(self.options, self.app)
        await self.start()

    async def start(self) -> None:
        await self.syncer.start()
        self._permanent = set(self.syncer._services.tasks)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    made = Setup(tmp_path)
    await made.start()
    yield made
    await made.syncer.stop()
