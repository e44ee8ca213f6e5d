"""`changesource demo`: the whole flow on one machine, with a store made for the occasion.

A small issue tracker in SQLite, `changesource serve` over it in a process of its own, a writer that keeps changing
issues, and a consumer that prints each transaction with the time it took from the commit in the store. It ends by
itself, leaves no process behind, and says how to go on.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import Annotated

import typer

from changesource_sdk.cli.demo_store import IssueTracker
from changesource_sdk.cli.output import ExitCode, print_json, reported, stdout
from changesource_sdk.cli.tail import describe, messages
from changesource_sdk.errors import ChangesourceError, ConfigurationError, EndpointError
from changesource_sdk.pipeline.spark.java import find_java

EPILOG = "Examples:\n\nchangesource demo\n\nchangesource demo --seconds 60 --keep ./demo --runner inline"


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long to watch live changes.")] = 15.0,
    runner: Annotated[
        str, typer.Option(help="spark, inline, or auto: Spark where Java and PySpark are there.")
    ] = "auto",
    keep: Annotated[
        Path | None, typer.Option(help="Folder to keep store and state in; a temporary one if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON, one per line.")] = False,
) -> None:
    """Run the whole flow on this machine and watch changes arrive."""
    with reported(as_json=as_json), _folder(keep) as folder:
        raise typer.Exit(asyncio.run(_Demo(folder, _runner(runner), seconds, as_json).run()))


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="changesource-demo-") as folder:
        yield Path(folder)


def _runner(wanted: str) -> str:
    if wanted not in ("auto", "spark", "inline"):
        raise ConfigurationError("bad-value", f"there is no runner {wanted!r}", "--runner", "auto, spark or inline")
    if wanted != "auto":
        return wanted
    try:
        import pyspark  # noqa: F401

        find_java()
    except (ImportError, ChangesourceError):
        return "inline"
    return "spark"


class _Demo:
    """One run. Invariant: the serving process ends with it, however it ends."""

    def __init__(self, folder: Path, runner: str, seconds: float, as_json: bool) -> None:
        self._folder = folder
        self._runner = runner
        self._seconds = seconds
        self._as_json = as_json
        self._latencies: list[float] = []

    def _say(self, event: str, text: str, **fields: object) -> None:
        if self._as_json:
            print_json({"event": event, **fields})
        else:
            stdout.print(text, markup=False)

    async def run(self) -> int:
        """All steps in order; the exit code."""
        shutil.rmtree(self._folder / "state", ignore_errors=True)
        tracker = IssueTracker.create(self._folder / "tracker.db")
        self._say("store", f"store:     {tracker.path}, {tracker.issues} issues in SQLite", issues=tracker.issues)
        lane = "Spark, which takes some seconds to start" if self._runner == "spark" else "the inline runner"
        self._say("pipeline", f"pipeline:  {lane}", runner=self._runner)
        with self._serving(tracker.path) as url:
            self._say("endpoint", f"endpoint:  {url}", url=url)
            await self._follow(url, tracker)
        self._tell_end()
        return ExitCode.OK

    @contextmanager
    def _serving(self, store: Path) -> Iterator[str]:
        command = [sys.executable, "-m", "changesource_sdk.cli", "serve", "sqlite", "--json", "--log-level", "error"]
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

    async def _follow(self, url: str, tracker: IssueTracker) -> None:
        """The snapshot, then live transactions for the time asked for."""
        began = time.monotonic()
        rows = 0
        stop = threading.Event()
        writer = threading.Thread(target=tracker.keep_writing, args=(stop,), daemon=True)
        try:
            async with aclosing(messages(url, None)) as stream:
                async for text in stream:
                    message = json.loads(text)
                    rows += message[0] == "data" and message[1]["tag"] == "insert"
                    if message[0] == "commit" and not writer.ident:
                        took = time.monotonic() - began
                        self._say("snapshot", f"snapshot:  {rows} rows after {took:.1f} s", rows=rows, seconds=took)
                        writer.start()
                        asyncio.get_running_loop().call_later(self._seconds, stop.set)
                    elif writer.ident and message[0] == "data":
                        self._arrived(message)
                    if stop.is_set():
                        return
        finally:
            stop.set()

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
