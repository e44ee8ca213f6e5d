"""Checking an adapter: by the cases of the suite that only read, and then as its consumers will meet it, through a
pipeline and an endpoint that exist for this only.

The pipeline is a process of its own, as under `serve`, so an adapter that blocks or dies harms nobody; state is kept
in a folder that is removed at the end. The store is read and never written. What the pipeline reports as its failure is
the adapter's.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from changesource_cli.adapter_choice import load_class, resolve, try_settings, with_own_folder
from changesource_cli.checks.suite_check import check_suite
from changesource_sdk.changelog.sqlite.store import SqliteStore
from changesource_sdk.checking.endpoint import check_endpoint
from changesource_sdk.checking.endpoint_run import CheckSettings
from changesource_sdk.checking.verdict import Finding, Verdict
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.server import Endpoint
from changesource_sdk.errors import AdapterError
from changesource_sdk.pipeline.settings import PipelineSettings, command_line
from changesource_sdk.system_tables import Permissions
from changesource_sdk.testing.conformance.harness import ReadingHarness
from protocol.handshake import PATHS

PAGE = "docs/reference/adapter.md"
LOOK_S = 0.05
STOP_S = 5.0


async def check_adapter(
    name: str,
    settings: Mapping[str, object],
    asked: CheckSettings,
    *,
    keep: Callable[[bytes], None] = lambda line: None,
    tell: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[Verdict]:
    """The verdicts on an adapter, as they come. Raises what `serve` would before it starts."""
    path = resolve(name)
    adapter = load_class(path)
    try_settings(adapter, settings)
    is_kept = True
    async for verdict in check_suite(lambda: ReadingHarness(adapter, settings), tell):
        is_kept = is_kept and verdict.outcome != "broken"
        yield verdict
    if not is_kept:
        yield Verdict("stream", "not seen", "left out until the adapter keeps its contract")
        return
    try:
        async for verdict in _check_stream(PipelineSettings(path, settings), asked, keep, tell):
            yield verdict
    except AdapterError as error:
        place = f" ({error.where})" if error.where else ""
        finding = Finding(error.code, f"{error.message}{place}", own_fix=error.fix, own_page=PAGE)
        yield Verdict("stream", "broken", "the pipeline cannot go on", (finding,))


async def _check_stream(
    pipeline: PipelineSettings,
    asked: CheckSettings,
    keep: Callable[[bytes], None],
    tell: Callable[[str], None],
) -> AsyncIterator[Verdict]:
    with tempfile.TemporaryDirectory(prefix="changesource-check-") as folder:
        state = Path(folder)
        own = with_own_folder(load_class(pipeline.adapter), pipeline.settings, state)
        pipeline = replace(pipeline, settings=own)
        async with _served(pipeline, state, asked.seconds, tell) as url:
            async for verdict in check_endpoint(replace(asked, url=url, resets=True), keep=keep, tell=tell):
                refuse_failure(state)
                yield verdict
            refuse_failure(state)


def refuse_failure(state: Path) -> None:
    """Raise what the pipeline reports as its failure, if it does."""
    error = SqliteStore(state).reports.all().get("pipeline", {}).get("error")
    if isinstance(error, dict):
        raise AdapterError(**{name: str(error.get(name, "")) for name in ("code", "message", "where", "fix")})


@asynccontextmanager
async def _served(
    pipeline: PipelineSettings, state: Path, seconds: float, tell: Callable[[str], None]
) -> AsyncIterator[str]:
    """The stream's URL, once there is a snapshot to serve."""
    command = command_line(pipeline, state)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stderr=DEVNULL, env=environment)
    endpoint = Endpoint(ServeConfig(state=state, listen="127.0.0.1:0", grace=1.0), Permissions())
    try:
        port = await endpoint.start()
        tell("taking a snapshot")
        await _until_ready(endpoint, child, state, seconds)
        yield f"ws://127.0.0.1:{port}{next(iter(PATHS))}"
    finally:
        await endpoint.stop()
        await _end(child)


async def _until_ready(endpoint: Endpoint, child: asyncio.subprocess.Process, state: Path, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not endpoint.is_ready():
        refuse_failure(state)
        if child.returncode is not None or loop.time() > deadline:
            happened = "it took longer" if child.returncode is None else f"its process ended with {child.returncode}"
            raise AdapterError(
                "no-snapshot", f"there was no snapshot within {seconds:g} s: {happened}", "snapshot()", "--seconds more"
            )
        await asyncio.sleep(LOOK_S)


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
    try:
        await asyncio.wait_for(child.wait(), STOP_S)
    except TimeoutError:
        child.kill()
        await child.wait()
