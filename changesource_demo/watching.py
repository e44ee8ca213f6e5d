"""The demo on the terminal: a consumer that prints each transaction with the time it took from the commit in the store.

It ends by itself, leaves no process behind, and says how to go on.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from statistics import quantiles

from changesource_cli.commands.tail import describe, messages
from changesource_demo.tracker import IssueTracker, Writer
from changesource_sdk.errors import EndpointError


class Watch:
    """One run. Invariant: the serving process ends with it, however it ends."""

    def __init__(self, folder: Path, runner: str, seconds: float, say: Callable[..., None]) -> None:
        self._folder = folder
        self._runner = runner
        self._seconds = seconds
        self._say = say
        self._latencies: list[float] = []

    async def run(self) -> None:
        """All steps in order."""
        shutil.rmtree(self._folder / "state", ignore_errors=True)
        tracker = IssueTracker.create(self._folder / "tracker.db")
        self._say("store", f"store:     {tracker.path}, {tracker.issues} issues in SQLite", issues=tracker.issues)
        lane = "Spark, which takes some seconds to start" if self._runner == "spark" else "the inline runner"
        self._say("pipeline", f"pipeline:  {lane}", runner=self._runner)
        with self._serving(tracker.path) as url:
            self._say("endpoint", f"endpoint:  {url}", url=url)
            await self._follow(url, Writer(tracker))
        self._tell_end()

    @contextmanager
    def _serving(self, store: Path) -> Iterator[str]:
        command = [sys.executable, "-m", "changesource_cli", "serve", "sqlite", "--json", "--log-level", "error"]
        command += ["--set", f"path={store}", "--listen", "127.0.0.1:0", "--state", str(self._folder / "state")]
        process = subprocess.Popen([*command, "--runner", self._runner], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise EndpointError("demo-serve", "the endpoint did not start", fix="see the message above")
            yield str(json.loads(line)["url"])
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            if process.poll() is None:
                process.kill()
                process.wait()

    async def _follow(self, url: str, writer: Writer) -> None:
        """The snapshot, then live transactions for the time asked for."""
        began = time.monotonic()
        rows = 0
        is_live = False
        try:
            async with aclosing(messages(url, None)) as stream:
                async for text in stream:
                    message = json.loads(text)
                    rows += message[0] == "data" and message[1]["tag"] == "insert"
                    if message[0] == "commit" and not is_live:
                        is_live = True
                        took = time.monotonic() - began
                        self._say("snapshot", f"snapshot:  {rows} rows after {took:.1f} s", rows=rows, seconds=took)
                        writer.start()
                        asyncio.get_running_loop().call_later(self._seconds, writer.stop.set)
                    elif is_live and message[0] == "data":
                        self._arrived(message)
                    if writer.stop.is_set():
                        return
        finally:
            writer.stop.set()

    def _arrived(self, message: list[object]) -> None:
        row = message[1].get("new") if isinstance(message[1], dict) else None
        if not isinstance(row, dict) or "modified" not in row:
            return
        milliseconds = time.time() * 1000 - float(row["modified"])
        self._latencies.append(milliseconds)
        text = f"{milliseconds:7.1f} ms {describe(message).strip()}"
        self._say("change", text, latency_ms=milliseconds, row=row)

    def _tell_end(self) -> None:
        steps = quantiles(self._latencies, n=100, method="inclusive") if len(self._latencies) > 1 else []
        p50, p99 = (steps[49], steps[98]) if steps else (0.0, 0.0)
        text = (
            f"\n{len(self._latencies)} changes, store to consumer: p50 {p50:.1f} ms, p99 {p99:.1f} ms\n"
            "next:  changesource serve sqlite --set path=your.db --listen 127.0.0.1:4810 --state ./state\n"
            "       ZERO_UPSTREAM_TYPE=custom ZERO_UPSTREAM_DB=ws://127.0.0.1:4810/changes/v0/stream npx zero-cache"
        )
        self._say("end", text, changes=len(self._latencies), p50_ms=p50, p99_ms=p99)
