"""A healthy client among clients that send all they can: it is served as if they were not there.

`FLOOD_SECONDS` sets how long each flood lasts. On a machine with nothing else to do the 99th percentile of the healthy
client's pings stays below 250 ms and a commit reaches it within a second; the limits here allow for a busy one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cache.flooder import SCHEMA
from tests.support.child_process import ChildProcess
from tests.support.fakes.app_stub import AppStub, app_stub
from tests.support.fakes.sync_client import SyncClient, sync_client, sync_url
from tests.support.fakes.tiny_source import TinySource, insert
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

FLOOD = float(os.environ.get("FLOOD_SECONDS", "6"))
PING_SECONDS = 1.0
POKE_SECONDS = 3.0
INIT: dict[str, Any] = {
    "desiredQueriesPatch": [{"op": "put", "hash": "items", "ast": {"table": "item", "orderBy": [["id", "asc"]]}}],
    "clientSchema": SCHEMA,
}


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


@dataclass
class Healthy:
    """The healthy client, and how long it waited."""

    client: SyncClient
    source: TinySource
    pings: list[float] = field(default_factory=list)
    pokes: list[float] = field(default_factory=list)
    commits: int = 0

    async def live(self, seconds: float) -> None:
        """Ping all the time, and see a commit every second."""
        ends, due = time.perf_counter() + seconds, time.perf_counter()
        while time.perf_counter() < ends:
            began = time.perf_counter()
            await self.client.say("ping", {})
            await self.client.hear("pong")
            self.pings.append(time.perf_counter() - began)
            if time.perf_counter() >= due:
                due += max(1.0, seconds / 5)
                await self._commit()
            await asyncio.sleep(0.01)

    async def _commit(self) -> None:
        self.commits += 1
        key = 1000 + self.commits
        began = time.perf_counter()
        self.source.commit(insert(key, "new"))
        await self.client.hear("pokePart", where=lambda part: str(key) in str(part.get("rowsPatch")))
        self.pokes.append(time.perf_counter() - began)

    def figures(self) -> tuple[float, float]:
        """The 99th percentile of the pings, and the slowest poke; counting starts again."""
        ninety_nine = sorted(self.pings)[int(len(self.pings) * 0.99)]
        slowest = max(self.pokes)
        self.pings, self.pokes = [], []
        return ninety_nine, slowest


def is_quiet(cache: ReferenceCache) -> bool:
    """Whether nothing waits, and only the healthy client's group is left."""
    status = cache.status()
    return bool(status["intakeBytes"] == 0 and status["sync"]["groups"] == 1)


@asynccontextmanager
async def application() -> AsyncIterator[AppStub]:
    """Answers queries with nothing, and mutations after a second."""
    async with app_stub() as stub:
        stub.answer = lambda body: ["transformed", []] if isinstance(body, list) else {"mutations": []}
        stub.delay = lambda body: 0.0 if isinstance(body, list) else 1.0
        yield stub


def wait_for_memory(pid: int, allowed: float) -> None:
    """Wait until no more than this is resident, for at most 20 s: the caller judges what is left then."""
    with suppress(AssertionError):
        until(lambda: resident(pid) <= allowed, "memory given back", seconds=20)


@contextmanager
def flood(port: int, kind: str) -> Iterator[None]:
    process = ChildProcess(
        [sys.executable, "-m", "tests.faults.cache.flooder", str(port), kind], cwd=Path(__file__).parents[3]
    )
    process.wait_for_line("flooding")
    try:
        yield
    finally:
        process.kill()


async def test_a_healthy_client_does_not_notice_floods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with application() as app:
        with TinySource(insert(1, "one")) as source:
            settings = {"ZERO_MUTATE_URL": app.url, "ZERO_QUERY_URL": f"{app.url}/query"}
            with ReferenceCache(source.url, tmp_path, settings=settings) as cache:
                await asyncio.to_thread(cache.start)
                async with sync_client(sync_url(cache.port, "healthy", "healthy"), init=INIT) as client:
                    await client.hear("pokePart", where=lambda part: "rowsPatch" in part)
                    healthy = Healthy(client, source)
                    await healthy.live(1.0)
                    shown = [("alone", *healthy.figures(), resident(cache.process.pid))]
                    for kind in ("pings", "acknowledgements", "pushes", "queries", "sockets"):
                        before = resident(cache.process.pid)
                        with flood(cache.port, kind):
                            await healthy.live(FLOOD)
                        shown.append((kind, *healthy.figures(), resident(cache.process.pid)))
                        await asyncio.to_thread(until, lambda: is_quiet(cache), "the cache to be quiet")
                        allowed = before * 1.2
                        await asyncio.to_thread(wait_for_memory, cache.process.pid, allowed)
                        await healthy.live(1.0)
                        after = resident(cache.process.pid)
                        shown.append((f"after {kind}", *healthy.figures(), after))
                        with capsys.disabled():
                            print(*shown[-2:], sep="\n")
                        assert after <= allowed, f"{kind}: {before} bytes became {after}"
    for what, ping, poke, _ in shown:
        assert ping <= PING_SECONDS, f"{what}: a ping took {ping:.3f} s"
        assert poke <= POKE_SECONDS, f"{what}: a commit took {poke:.3f} s to arrive"
