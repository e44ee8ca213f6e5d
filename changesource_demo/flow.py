"""The flow of the demo: the store with its writer, the stages in their order, and how far each of them is."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from changesource_cli.commands.inspect import from_directory
from changesource_cli.statusz import fetch
from changesource_demo.picture import draw, origin_of
from changesource_demo.stages import Stage
from changesource_demo.tracker import IssueTracker, Writer
from changesource_sdk.errors import ChangesourceError

_CHANGESOURCE = (sys.executable, "-m", "changesource_cli")
_TOUCHED = "SELECT max(seq) FROM _changesource_changes"


class Flow:
    """Store → pipeline → log → endpoint → cache, and the application beside it. Stages find each other by the ports
    they were first given.
    """

    def __init__(self, folder: Path, runner: str, host: str) -> None:
        self.tracker = IssueTracker.create(folder / "tracker.db")
        self.writer = Writer(self.tracker)
        self._state = folder / "state"
        self._touched: int | None = None
        self._origin = 0
        self._runner = runner
        output = folder / "output"
        output.mkdir(exist_ok=True)

        def stage(name: str, command: Callable[[int], list[str]], **more: Any) -> Stage:
            return Stage(name, command, output=output / f"{name}.log", **more)

        self.pipeline = stage("pipeline", lambda _: self._serve("pipeline", runner), ready_event="running")
        self.endpoint = stage("endpoint", self._serve_endpoint)
        self.cache = stage(
            "cache",
            lambda _: [*_CHANGESOURCE, "cache", "--json"],
            settings=lambda port: self._cache_settings(folder / "replica.db", host, port),
            ready_event="ready",
        )
        self.app = stage(
            "app", lambda port: [sys.executable, "-m", "changesource_demo.app", str(self.tracker.path), str(port)]
        )
        self.stages = {each.name: each for each in (self.pipeline, self.endpoint, self.cache, self.app)}

    def _serve(self, role: str, runner: str) -> list[str]:
        source = ["sqlite", "--set", f"path={self.tracker.path}", "--runner", runner]
        return [*_CHANGESOURCE, "serve", *source, "--role", role, "--state", str(self._state), "--json"]

    def _serve_endpoint(self, port: int) -> list[str]:
        asked = ["--listen", f"127.0.0.1:{port}", "--permissions", "allow-all"]
        return [*_CHANGESOURCE, "serve", "--role", "endpoint", "--state", str(self._state), "--json", *asked]

    def _cache_settings(self, replica: Path, host: str, port: int) -> Mapping[str, str]:
        return {
            "ZERO_UPSTREAM_DB": f"ws://127.0.0.1:{self.endpoint.port}/changes/v0/stream",
            "ZERO_PORT": str(port),
            "ZERO_REPLICA_FILE": str(replica),
            "ZERO_QUERY_URL": f"http://127.0.0.1:{self.app.port}/query",
            "ZERO_MUTATE_URL": f"http://127.0.0.1:{self.app.port}/mutate",
            "CHANGESOURCE_CACHE_HOST": host,
            # Opens the inspector, which tells the page the plan of a query.
            "NODE_ENV": "development",
        }

    async def stop(self) -> None:
        """End the writer and every stage, the last of the flow first."""
        self.writer.stop.set()
        for stage in reversed(self.stages.values()):
            await stage.stop()

    async def picture(self) -> dict[str, Any]:
        """How far everything is, and what runs."""
        log, endpoint, cache = await asyncio.gather(
            asyncio.to_thread(_asked, from_directory, self._state),
            self._status(self.endpoint),
            self._status(self.cache),
        )
        now = time.time()
        # The first snapshot, however many follow.
        self._origin = self._origin or origin_of(log) or 0
        shown = {each.name: {"state": each.state, "for": now - each.since} for each in self.stages.values()}
        store = await asyncio.to_thread(self._store, now)
        drawn = draw(store, log, endpoint, cache, self._origin)
        return {"time": now, "runner": self._runner, "origin": self._origin, "stages": shown, **drawn}

    async def _status(self, stage: Stage) -> Mapping[str, Any] | None:
        if stage.state not in ("running", "starting") or not stage.port:
            return None
        return await asyncio.to_thread(_asked, fetch, f"127.0.0.1:{stage.port}")

    def _store(self, now: float) -> dict[str, Any]:
        writer = self.writer
        age = now - writer.wrote_at if writer.wrote_at is not None else None
        self._touched = self._newest_key() or self._touched
        return {"writes": writer.writes, "perSecond": writer.per_second, "age": age, "touched": self._touched}

    def _newest_key(self) -> int | None:
        """The last key the store has noted as touched; None before the capture is there, or when all are read."""
        try:
            with closing(sqlite3.connect(f"file:{self.tracker.path}?mode=ro", uri=True, timeout=1)) as store:
                (newest,) = store.execute(_TOUCHED).fetchone()
                return newest if newest is None else int(newest)
        except sqlite3.OperationalError:
            return None


def _asked(ask: Callable[[Any], Mapping[str, Any]], whom: object) -> Mapping[str, Any] | None:
    try:
        return ask(whom)
    except ChangesourceError:
        return None
