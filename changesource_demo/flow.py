"""The demo's upstream with its writer, its processes in the order of the data, and how far each of them is."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from changesource_demo.picture import Document, UpstreamProgress, draw, origin_of
from changesource_demo.process import ManagedProcess
from changesource_demo.tracker import IssueTracker, Writer
from changesource_sdk.endpoint.fetch_status import fetch_status
from changesource_sdk.endpoint.log_status import status_of_directory
from changesource_sdk.errors import ChangesourceError

_CHANGESOURCE = (sys.executable, "-m", "changesource_cli")
_NEWEST_KEY = "SELECT max(seq) FROM _changesource_changes"
_Target = TypeVar("_Target")


class DemoFlow:
    """Upstream → pipeline → log → endpoint → cache, and the application that the cache calls.

    Each process gets the ports that the others had when it was started.
    """

    def __init__(self, folder: Path, runner: str, host: str) -> None:
        self.tracker = IssueTracker.create(folder / "tracker.db")
        self.writer = Writer(self.tracker)
        self._state = folder / "state"
        self._runner = runner
        # Newest `seq` seen in the upstream's table of changed keys, which the adapter empties; written by `_upstream`.
        self._touched: int | None = None
        # Number of the first snapshot's watermark, 0 until there is one; written by `picture`.
        self._origin = 0
        output = folder / "output"
        output.mkdir(exist_ok=True)
        self.pipeline = ManagedProcess(
            "pipeline", lambda _: self._serve_pipeline(runner), ready_event="running", output=output / "pipeline.log"
        )
        self.endpoint = ManagedProcess("endpoint", self._serve_endpoint, output=output / "endpoint.log")
        self.cache = ManagedProcess(
            "cache",
            lambda _: [*_CHANGESOURCE, "cache", "--json"],
            settings=lambda port: self._cache_settings(folder / "replica.db", host, port),
            ready_event="ready",
            output=output / "cache.log",
        )
        self.app = ManagedProcess("app", self._serve_app, output=output / "app.log")
        self.processes = {each.name: each for each in (self.pipeline, self.endpoint, self.cache, self.app)}

    def _serve_pipeline(self, runner: str) -> list[str]:
        source = ["sqlite", "--set", f"path={self.tracker.path}", "--runner", runner]
        return [*_CHANGESOURCE, "serve", *source, "--role", "pipeline", "--state", str(self._state), "--json"]

    def _serve_endpoint(self, port: int) -> list[str]:
        options = ["--listen", f"127.0.0.1:{port}", "--permissions", "allow-all"]
        return [*_CHANGESOURCE, "serve", "--role", "endpoint", "--state", str(self._state), "--json", *options]

    def _serve_app(self, port: int) -> list[str]:
        return [sys.executable, "-m", "changesource_demo.app", str(self.tracker.path), str(port)]

    def _cache_settings(self, replica: Path, host: str, port: int) -> Mapping[str, str]:
        return {
            "ZERO_UPSTREAM_DB": f"ws://127.0.0.1:{self.endpoint.port}/changes/v0/stream",
            "ZERO_PORT": str(port),
            "ZERO_REPLICA_FILE": str(replica),
            "ZERO_QUERY_URL": f"http://127.0.0.1:{self.app.port}/query",
            "ZERO_MUTATE_URL": f"http://127.0.0.1:{self.app.port}/mutate",
            "CHANGESOURCE_CACHE_HOST": host,
            # Allows the inspector, from which the page gets the plan of a query.
            "NODE_ENV": "development",
        }

    async def stop(self) -> None:
        """Stop the writer and every process, the last of the flow first."""
        self.writer.stop.set()
        for process in reversed(self.processes.values()):
            await process.stop()

    async def picture(self) -> dict[str, object]:
        """Return what the page shows: how far every part is, and which processes run."""
        log, endpoint, cache = await asyncio.gather(
            asyncio.to_thread(_or_none, status_of_directory, self._state),
            self._status(self.endpoint),
            self._status(self.cache),
        )
        now = time.time()
        # Compaction makes newer snapshots; positions are counted from the first.
        self._origin = self._origin or origin_of(log) or 0
        processes = {each.name: {"state": each.state, "for": now - each.since} for each in self.processes.values()}
        upstream = await asyncio.to_thread(self._upstream, now)
        parts = draw(upstream, log, endpoint, cache, self._origin)
        return {"time": now, "runner": self._runner, "origin": self._origin, "stages": processes, **parts}

    async def _status(self, process: ManagedProcess) -> Document | None:
        if process.state not in ("running", "starting") or not process.port:
            return None
        return await asyncio.to_thread(_or_none, fetch_status, f"127.0.0.1:{process.port}")

    def _upstream(self, now: float) -> UpstreamProgress:
        writer = self.writer
        age = now - writer.wrote_at if writer.wrote_at is not None else None
        self._touched = self._newest_key() or self._touched
        return {"writes": writer.writes, "perSecond": writer.per_second, "age": age, "touched": self._touched}

    def _newest_key(self) -> int | None:
        """Return the newest `seq` of the changed keys; None if the table is empty or the adapter has not made it."""
        try:
            with closing(sqlite3.connect(f"file:{self.tracker.path}?mode=ro", uri=True, timeout=1)) as connection:
                (newest,) = connection.execute(_NEWEST_KEY).fetchone()
                return newest if newest is None else int(newest)
        except sqlite3.OperationalError:
            return None


def _or_none(read: Callable[[_Target], Document], target: _Target) -> Document | None:
    try:
        return read(target)
    except ChangesourceError:
        return None
