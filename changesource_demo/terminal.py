"""The demo in the terminal: a consumer that prints each change with the time since its commit in the upstream.

It ends by itself, leaves no process running, and prints what to try next.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from statistics import quantiles

from changesource_demo.progress import Report, report_runner
from changesource_demo.tracker import IssueTracker, Writer
from changesource_sdk.checking.read_stream import describe_message, messages
from changesource_sdk.errors import EndpointError


class TerminalDemo:
    """One run. Invariant: the serving process ends with `run`, also when that raises."""

    def __init__(self, folder: Path, runner: str, seconds: float, report: Report) -> None:
        """`seconds` is how long live changes are shown, counted from the end of the snapshot."""
        self._folder = folder
        self._runner = runner
        self._seconds = seconds
        self._report = report
        # Milliseconds from commit to arrival, of each change in its order; `_arrived` appends.
        self._latencies: list[float] = []

    async def run(self) -> None:
        """Make the upstream, serve it, show the snapshot and live changes, and print a summary."""
        shutil.rmtree(self._folder / "state", ignore_errors=True)
        tracker = IssueTracker.create(self._folder / "tracker.db")
        self._report("store", f"store:     {tracker.path}, {tracker.issues} issues in SQLite", issues=tracker.issues)
        report_runner(self._report, self._runner)
        with self._serving(tracker.path) as url:
            self._report("endpoint", f"endpoint:  {url}", url=url)
            await self._follow(url, Writer(tracker))
        self._report_summary()

    @contextmanager
    def _serving(self, database: Path) -> Iterator[str]:
        """Run `changesource serve` for the length of a block; gives the stream's URL."""
        command = [sys.executable, "-m", "changesource_cli", "serve", "sqlite", "--json", "--log-level", "error"]
        command += ["--set", f"path={database}", "--listen", "127.0.0.1:0", "--state", str(self._folder / "state")]
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
        """Read the snapshot, start the writer, and report live changes for `seconds`."""
        started = time.monotonic()
        rows = 0
        is_live = False
        try:
            async with aclosing(messages(url, None)) as stream:
                async for text in stream:
                    message = json.loads(text)
                    rows += message[0] == "data" and message[1]["tag"] == "insert"
                    if message[0] == "commit" and not is_live:
                        is_live = True
                        took = time.monotonic() - started
                        self._report("snapshot", f"snapshot:  {rows} rows after {took:.1f} s", rows=rows, seconds=took)
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
        text = f"{milliseconds:7.1f} ms {describe_message(message).strip()}"
        self._report("change", text, latency_ms=milliseconds, row=row)

    def _report_summary(self) -> None:
        steps = quantiles(self._latencies, n=100, method="inclusive") if len(self._latencies) > 1 else []
        p50, p99 = (steps[49], steps[98]) if steps else (0.0, 0.0)
        text = (
            f"\n{len(self._latencies)} changes, store to consumer: p50 {p50:.1f} ms, p99 {p99:.1f} ms\n"
            "next:  changesource serve sqlite --set path=your.db --listen 127.0.0.1:4810 --state ./state\n"
            "       ZERO_UPSTREAM_TYPE=custom ZERO_UPSTREAM_DB=ws://127.0.0.1:4810/changes/v0/stream npx zero-cache"
        )
        self._report("end", text, changes=len(self._latencies), p50_ms=p50, p99_ms=p99)
