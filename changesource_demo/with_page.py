"""The demo with its page: start everything, report each step, and stop everything on the first signal."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
from pathlib import Path

from changesource_demo.flow import DemoFlow
from changesource_demo.page_server import PageServer
from changesource_demo.progress import Report, report_runner

PLAN = (
    "demo:      an upstream, the pipeline, its endpoint, a cache and an application start on this machine;\n"
    "           the address of a page that shows them follows, usually within a minute"
)


async def run_with_page(
    folder: Path, runner: str, address: tuple[str, int], report: Report, stop_signal: asyncio.Future[signal.Signals]
) -> None:
    """Run until `stop_signal` has a result. What an earlier run left in `folder` is removed."""
    for leftover in ("state", "replica.db", "replica.db-cvr", "output"):
        _remove(folder / leftover)
    flow = DemoFlow(folder, runner, address[0])
    issues = flow.tracker.issues
    report("plan", PLAN)
    report("store", f"store:     {flow.tracker.path}, an issue tracker with {issues} issues in SQLite", issues=issues)
    starting = asyncio.create_task(_start(flow, runner, report))
    server: PageServer | None = None
    try:
        await asyncio.wait((starting, stop_signal), return_when=asyncio.FIRST_COMPLETED)
        if not stop_signal.done():
            await starting
            server = PageServer(flow, secrets.token_hex(4))
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            url = f"http://{host}:{await server.start(*address)}/"
            report("page", f"\npage:      {url}\n           Ctrl-C ends everything", url=url)
            flow.writer.start()
        await stop_signal
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        if server is not None:
            await server.stop()
        await flow.stop()


async def _start(flow: DemoFlow, runner: str, report: Report) -> None:
    report_runner(report, runner)
    await asyncio.gather(flow.pipeline.start(), flow.endpoint.start(), flow.app.start())
    stream = f"ws://127.0.0.1:{flow.endpoint.port}/changes/v0/stream"
    report("endpoint", f"endpoint:  {stream}", url=stream)
    report("app", f"app:       http://127.0.0.1:{flow.app.port}, named queries and mutators", port=flow.app.port)
    report("waiting", "cache:     waits for the snapshot")
    await flow.cache.start()
    report("cache", f"cache:     ready for clients on port {flow.cache.port}", port=flow.cache.port)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
