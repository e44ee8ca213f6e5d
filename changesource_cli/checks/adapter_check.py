"""Checking an adapter: first by the cases of the conformance suite that only read, then from outside, through a
temporary pipeline and endpoint.

The pipeline is a child process, as under `serve`, so an adapter that blocks or crashes does not end the check. State is
in a temporary folder. The upstream is read and never written. An error that the pipeline reports is a finding about the
adapter.
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
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.checking.endpoint import check_endpoint
from changesource_sdk.checking.endpoint_run import CheckSettings
from changesource_sdk.checking.verdict import CheckVerdict, Finding
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.server import Endpoint
from changesource_sdk.errors import AdapterError
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.settings import PipelineSettings, command_line
from changesource_sdk.pipeline.snapshot.take import adapter_call
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.system_tables import Permissions
from changesource_sdk.testing.conformance.harness import ReadingHarness
from protocol.stream.handshake import PATHS

PAGE = "docs/reference/adapter.md"
POLL_SECONDS = 0.05
STOP_SECONDS = 5.0


async def check_adapter(
    name: str,
    settings: Mapping[str, object],
    options: CheckSettings,
    *,
    keep: Callable[[bytes], None] = lambda line: None,
    report_progress: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[CheckVerdict]:
    """Yield the verdicts on an adapter as they are reached. Raises `ConfigurationError` where `serve` would refuse.

    `keep` gets every line of the transcript, `report_progress` what is being checked now.
    """
    path = resolve(name)
    adapter = load_class(path)
    try_settings(adapter, settings)
    if (failure := await asyncio.to_thread(_unreadable, adapter, settings)) is not None:
        yield failure
        yield CheckVerdict("stream", "not seen", "left out until the upstream can be read")
        return
    keeps_contract = True
    async for verdict in check_suite(lambda: ReadingHarness(adapter, settings), report_progress):
        keeps_contract = keeps_contract and verdict.outcome != "broken"
        yield verdict
    if not keeps_contract:
        yield CheckVerdict("stream", "not seen", "left out until the adapter keeps its contract")
        return
    try:
        async for verdict in _check_stream(SourceSpec(path, settings), options, keep, report_progress):
            yield verdict
    except AdapterError as error:
        where = f" ({error.where})" if error.where else ""
        finding = Finding(error.code, f"{error.message}{where}", own_fix=error.fix, own_page=PAGE)
        yield CheckVerdict("stream", "broken", "the pipeline cannot continue", (finding,))


def _unreadable(adapter: type, settings: Mapping[str, object]) -> CheckVerdict | None:
    """The verdict if the upstream cannot be read at all: then every case would fail for this one reason.

    What an adapter gets wrong in its answers is for the cases to say.
    """
    try:
        with opened(lambda: adapter(**settings)) as made, adapter_call("tables()"):
            made.tables()
    except AdapterError as error:
        where = f" ({error.where})" if error.where else ""
        finding = Finding(error.code, f"{error.message}{where}", own_fix=error.fix, own_page=PAGE)
        return CheckVerdict("tables", "broken", "tables() fails, so nothing else can be checked", (finding,))
    return None


async def _check_stream(
    source: SourceSpec,
    options: CheckSettings,
    keep: Callable[[bytes], None],
    report_progress: Callable[[str], None],
) -> AsyncIterator[CheckVerdict]:
    with tempfile.TemporaryDirectory(prefix="changesource-check-") as folder:
        state = Path(folder)
        own = with_own_folder(load_class(source.adapter), source.settings, state)
        pipeline = PipelineSettings(replace(source, settings=own))
        async with _served(pipeline, state, options.seconds, report_progress) as url:
            async for verdict in check_endpoint(
                replace(options, url=url, resets=True), keep=keep, report_progress=report_progress
            ):
                raise_failure(state)
                yield verdict
            raise_failure(state)


def raise_failure(state: Path) -> None:
    """Raise the error that the pipeline reports, if any, as `AdapterError`."""
    error = SqliteLogStore(state).reports.all().get("pipeline", {}).get("error")
    if isinstance(error, dict):
        raise AdapterError(**{name: str(error.get(name, "")) for name in ("code", "message", "where", "fix")})


@asynccontextmanager
async def _served(
    pipeline: PipelineSettings, state: Path, seconds: float, report_progress: Callable[[str], None]
) -> AsyncIterator[str]:
    """Serve the adapter for the length of a block; gives the stream's URL once there is a snapshot."""
    command = command_line(pipeline, state)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stderr=DEVNULL, env=environment)
    endpoint = Endpoint(ServeConfig(state=state, listen="127.0.0.1:0", grace=1.0), Permissions())
    try:
        port = await endpoint.start()
        report_progress("taking a snapshot")
        await _until_ready(endpoint, child, state, seconds)
        yield f"ws://127.0.0.1:{port}{next(iter(PATHS))}"
    finally:
        await endpoint.stop()
        await _end(child)


async def _until_ready(endpoint: Endpoint, child: asyncio.subprocess.Process, state: Path, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not endpoint.is_ready():
        raise_failure(state)
        if child.returncode is not None or loop.time() > deadline:
            reason = "it took longer" if child.returncode is None else f"its process ended with {child.returncode}"
            raise AdapterError(
                "no-snapshot", f"there was no snapshot within {seconds:g} s: {reason}", "snapshot()", "--seconds more"
            )
        await asyncio.sleep(POLL_SECONDS)


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
    try:
        await asyncio.wait_for(child.wait(), STOP_SECONDS)
    except TimeoutError:
        child.kill()
        await child.wait()
