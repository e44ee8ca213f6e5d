"""Checking an adapter as its consumers will meet it: through a pipeline and an endpoint that exist for this only.

The pipeline is a process of its own, as under `serve`, so an adapter that blocks or dies harms nobody; state is kept
in a folder that is removed at the end. The store is read and never written. What the pipeline reports as its failure is
the adapter's, and ends the check with it.
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

from changesource_sdk.checking.endpoint import check_endpoint
from changesource_sdk.checking.endpoint_run import CheckSettings
from changesource_sdk.checking.verdict import Verdict
from changesource_sdk.cli.adapter_choice import load_class, resolve, try_settings
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.server import Endpoint
from changesource_sdk.errors import AdapterError
from changesource_sdk.observe.stages import read_stages
from changesource_sdk.pipeline.child import PipelineSettings, command_line
from changesource_sdk.system_tables import Permissions
from protocol.handshake import PATHS

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
    """The verdicts on an adapter, as they come. Raises `AdapterError` if it fails, and what `serve` would raise."""
    path = resolve(name)
    try_settings(load_class(path), settings)
    with tempfile.TemporaryDirectory(prefix="changesource-check-") as folder:
        state = Path(folder)
        async with _served(PipelineSettings(path, settings), state, asked.seconds, tell) as url:
            async for verdict in check_endpoint(replace(asked, url=url, resets=True), keep=keep, tell=tell):
                refuse_failure(state)
                yield verdict
            refuse_failure(state)


def refuse_failure(state: Path) -> None:
    """Raise what the pipeline reports as its failure, if it does."""
    error = read_stages(state).get("pipeline", {}).get("error")
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
