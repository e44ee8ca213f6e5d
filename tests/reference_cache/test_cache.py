"""A whole cache, with its replicator in a process of its own, on a replica that is deleted while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reference_cache.cache import Cache
from reference_cache.config import CacheConfig
from reference_cache.replica.replica import open_replica
from tests.reference_cache.sources import ScriptedSource, insert, play, snapshot
from tests.support.fakes.sync_client import SyncClient, sync_client, sync_url

SECONDS = 60.0
COLUMNS = {"id": {"type": "number"}, "name": {"type": "string"}}
INIT: dict[str, Any] = {
    "desiredQueriesPatch": [{"op": "put", "hash": "h1", "ast": {"table": "item"}}],
    "clientSchema": {"tables": {"item": {"columns": COLUMNS, "primaryKey": ["id"]}}},
}


async def rows_until(client: SyncClient, wanted: int) -> list[Any]:
    """The ids of the rows it is sent, until one is there."""
    found: list[Any] = []
    while wanted not in found:
        part = await client.hear("pokePart", "error")
        assert "kind" not in part, part
        found += [patch["value"]["id"] for patch in part.get("rowsPatch", []) if patch["op"] == "put"]
    return found


def _delete(folder: Path, pattern: str) -> None:
    for file in folder.glob(pattern):
        file.unlink()


async def ready(port: int, status: int) -> None:
    """Wait until `/readyz` answers so."""
    async with asyncio.timeout(SECONDS), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                if answer.status == status:
                    return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("pattern", ["zero.db", "zero.db*"])
async def test_a_replica_that_is_deleted_is_noticed_and_synced_again(
    tmp_path: Path, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    may_sync = asyncio.Event()

    async def again(stage: Any) -> None:
        await may_sync.wait()
        await stage.send(snapshot("09", insert(9, "nine")))
        await stage.hold()

    first = play(*snapshot("01", insert(1, "one")))
    async with ScriptedSource(first, play(), again, play()) as source:
        cache = Cache(CacheConfig(upstream_db=source.url, port=0, replica_file=tmp_path / "zero.db"))
        port = await cache.start()
        try:
            async with asyncio.timeout(SECONDS):
                await cache.wait_until_ready()
            async with sync_client(sync_url(port, "c1", "g1"), init=INIT) as client:
                assert await rows_until(client, 1)
                _delete(tmp_path, pattern)
                await ready(port, 503)
                may_sync.set()
                assert (await client.error())["kind"] == "ClientNotFound"
            await ready(port, 200)
            async with sync_client(sync_url(port, "c2", "g2"), init=INIT) as client:
                assert await rows_until(client, 9) == [9]
        finally:
            await cache.stop()
    assert source.requests[-2].last_watermark is None
    assert "the replica's file was deleted while in use; syncing again" in caplog.messages
    assert "not ready: the replica is gone" in caplog.messages
    assert open_replica(tmp_path / "zero.db").connect().execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert (tmp_path / "zero.db-cvr").exists()
