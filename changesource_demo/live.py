"""The demo with its page: start everything, say so step by step, and end everything on the first signal."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from changesource_cli.signals import first_signal
from changesource_demo.flow import Flow

Say = Callable[..., None]
"""Tells one step: the event's name, a line for people, and the event's fields."""


async def show(folder: Path, runner: str, listen: tuple[str, int], say: Say) -> signal.Signals:
    """Run until a signal comes; which one it was."""
    from changesource_demo.console import Console

    told_to_stop = first_signal(signal.SIGHUP)
    for leftover in ("state", "replica.db", "replica.db-cvr", "output"):
        _remove(folder / leftover)
    flow = Flow(folder, runner, listen[0])
    issues = flow.tracker.issues
    say("store", f"store:     {flow.tracker.path}, an issue tracker with {issues} issues in SQLite", issues=issues)
    starting = asyncio.create_task(_start(flow, runner, say))
    console: Console | None = None
    try:
        await asyncio.wait((starting, told_to_stop), return_when=asyncio.FIRST_COMPLETED)
        if not told_to_stop.done():
            await starting
            console = Console(flow, secrets.token_hex(4))
            host = f"[{listen[0]}]" if ":" in listen[0] else listen[0]
            url = f"http://{host}:{await console.start(*listen)}/"
            say("page", f"\npage:      {url}\n           Ctrl-C ends everything", url=url)
            flow.writer.start()
        return await told_to_stop
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        if console is not None:
            await console.stop()
        await flow.stop()


async def _start(flow: Flow, runner: str, say: Say) -> None:
    lane = "Spark, which takes some seconds to start" if runner == "spark" else "the inline runner"
    say("pipeline", f"pipeline:  {lane}", runner=runner)
    await asyncio.gather(flow.pipeline.start(), flow.endpoint.start(), flow.app.start())
    stream = f"ws://127.0.0.1:{flow.endpoint.port}/changes/v0/stream"
    say("endpoint", f"endpoint:  {stream}", url=stream)
    say("app", f"app:       http://127.0.0.1:{flow.app.port}, named queries and mutators", port=flow.app.port)
    say("waiting", "cache:     waits for the snapshot")
    await flow.cache.start()
    say("cache", f"cache:     ready for clients on port {flow.cache.port}", port=flow.cache.port)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
