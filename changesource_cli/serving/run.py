"""Running an endpoint, a pipeline or both in the foreground, from the first line printed to a clean stop.

By default one `serve` runs both. With a log that several hosts share, `--role` runs only one of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from time import time

from changesource_cli.adapter_choice import (
    load_class,
    named_source,
    resolve,
    source_specs,
    try_settings,
    with_own_folder,
)
from changesource_cli.output import ExitCode, print_json, stderr, stdout
from changesource_cli.serving.seeding import SeedSchedule
from changesource_cli.serving.state_watch import StateWatch
from changesource_cli.serving.supervisor import Supervisor
from changesource_cli.signals import first_signal
from changesource_sdk.changelog.open import open_store
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.server import Endpoint
from changesource_sdk.observe.progress import Bar, Lines, StageWatch
from changesource_sdk.pipeline.mapping.declare import needs_spark, wrong
from changesource_sdk.pipeline.settings import PipelineSettings, Runner, command_line
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.system_tables import Permissions
from protocol.stream.handshake import PATHS
from service_kit import logs
from service_kit.logs import event, logger

log = logger("serve")


async def run(config: ServeConfig, *, as_json: bool) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. Raises `ChangesourceError` for what the user can fix."""
    logs.configure(form="json" if as_json else config.log_format, level=config.log_level)
    specs: list[SourceSpec] = []
    publications = None
    if config.role != "endpoint":
        specs = source_specs(config) or [SourceSpec(resolve(config.adapter))]
        publications = _try_all(specs)
        for spec in specs:
            _check_mappings(config, spec)
    # Handle signals before announcing the endpoint: an earlier one would end the process without a clean stop.
    serving = _Serving(config, specs, publications, as_json, first_signal())
    while (code := await serving.run_once()) is None:
        where = str(config.state)
        event(log, logging.ERROR, "the state directory is gone or another one, starting over", where=where)
    return code


class _Serving:
    """Endpoint and pipeline of one `serve`, started again with a new state directory when the old one is removed."""

    def __init__(
        self,
        config: ServeConfig,
        specs: list[SourceSpec],
        publications: frozenset[str] | None,
        as_json: bool,
        stop_signal: asyncio.Future[signal.Signals],
    ) -> None:
        # Gets the port in use from `_started_endpoint`, so that a restart listens on the same one.
        self._config = config
        self._specs = specs
        self._publications = publications
        self._as_json = as_json
        self._stop_signal = stop_signal
        # Whether the address, or the pipeline, was printed; set by the first `_started_endpoint`.
        self._is_announced = False

    async def run_once(self) -> int | None:
        """Run until a signal or until the pipeline cannot run.

        Return the exit code, or None if the state directory was removed or replaced.
        """
        config = self._config
        log_store = open_store(config.state, config.log, config.log_schema, config.spool)
        if config.role == "endpoint":
            return await self._run_here(log_store, None)
        with log_store.claim():
            command = command_line(_pipeline(config, self._specs), config.state)
            return await self._run_here(log_store, Supervisor(command, _environment(config), grace=config.grace))

    async def _run_here(self, log_store: LogStore, supervisor: Supervisor | None) -> int | None:
        endpoint = await self._started_endpoint(supervisor)
        supervision = asyncio.create_task(supervisor.run()) if supervisor else None
        watch = asyncio.create_task(_watch(log_store, self._as_json)) if supervisor else None
        state_gone = asyncio.create_task(StateWatch(log_store.layout).run())
        schedule = SeedSchedule(self._config, log_store, _environment(self._config))
        seeding = asyncio.create_task(schedule.run()) if supervisor else None
        try:
            ends = [end for end in (self._stop_signal, supervision, state_gone) if end is not None]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            must_start_over = state_gone.done() and not self._stop_signal.done()
        finally:
            if supervisor is not None:
                supervisor.stop()
            ending = (endpoint.stop() if endpoint else None, supervision)
            await asyncio.gather(*(end for end in ending if end is not None))
            for task in (watch, state_gone, seeding):
                await _cancelled(task)
            log_store.close()
        if must_start_over:
            return None
        if not self._stop_signal.done():
            return (supervisor.health.last_exit if supervisor else None) or ExitCode.FAILURE
        return ExitCode.INTERRUPTED if self._stop_signal.result() == signal.SIGINT else ExitCode.OK

    async def _started_endpoint(self, supervisor: Supervisor | None) -> Endpoint | None:
        config = self._config
        if config.role == "pipeline":
            if not self._is_announced:
                _announce_pipeline(config, self._as_json)
            self._is_announced = True
            return None
        health = supervisor.health.as_json if supervisor else None
        endpoint = Endpoint(config, Permissions.parse(config.permissions), health, self._publications)
        if supervisor is not None:
            supervisor.is_served = endpoint.is_ready
        port = await endpoint.start()
        if not self._is_announced:
            _announce(config, port, self._as_json)
        self._is_announced = True
        self._config = replace(config, listen=f"{config.listen.rpartition(':')[0]}:{port}")
        return endpoint


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch(log_store: LogStore, as_json: bool) -> None:
    display = Bar(stderr) if stderr.is_terminal and not as_json else Lines()
    await StageWatch(display, time() * 1000).run(log_store.reports.all)


def _try_all(specs: list[SourceSpec]) -> frozenset[str] | None:
    """Construct every adapter once; return the publications that they follow, None if no adapter has any. Raises
    `ConfigurationError`, which names the source.
    """
    followed: set[str] = set()
    has_publications = False
    for spec in specs:
        with named_source(spec.name):
            publications = try_settings(load_class(spec.adapter), spec.settings)
        followed |= publications or set()
        has_publications |= publications is not None
    return frozenset(followed) if has_publications else None


def _pipeline(config: ServeConfig, specs: list[SourceSpec]) -> PipelineSettings:
    conf = {key: str(value) for key, value in config.conf.items()}
    runner: Runner = "inline" if config.runner == "inline" else "spark"
    own = [
        replace(spec, settings=with_own_folder(load_class(spec.adapter), spec.settings, config.state, spec.name))
        for spec in specs
    ]
    return PipelineSettings(
        None if config.sources else own[0],
        sources=own if config.sources else (),
        runner=runner,
        master=config.master,
        conf=conf,
        log=config.log,
        log_schema=config.log_schema,
        spool=config.spool,
        compact_after=config.compact_after,
    )


def _check_mappings(config: ServeConfig, spec: SourceSpec) -> None:
    """Raise `ConfigurationError` for mistakes that show without the tables, which are read later."""
    key = needs_spark(spec.loaded_mappings())
    if key is not None and config.runner == "inline":
        raise wrong(key, "Spark SQL needs the Spark runner", "use --runner spark, or a Python function")


def _environment(config: ServeConfig) -> dict[str, str]:
    """Return the child's environment: ours, its log level, and our import path, so that it can import the adapter."""
    path = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": path, "CHANGESOURCE_LOG_LEVEL": config.log_level}


def _announce_pipeline(config: ServeConfig, as_json: bool) -> None:
    """Print that the pipeline runs, without an endpoint."""
    if as_json:
        print_json({"event": "running", "role": config.role, "pid": os.getpid()})
    else:
        names = ", ".join(config.sources) or config.adapter
        stdout.print(f"running the pipeline of {names}, state in {config.state}", markup=False)


def _announce(config: ServeConfig, port: int, as_json: bool) -> None:
    """Print the address, and the settings for zero-cache."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    reachable = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    secure = config.tls_cert is not None
    url = f"{'wss' if secure else 'ws'}://{reachable}:{port}{next(iter(PATHS))}"
    if as_json:
        print_json({"event": "listening", "host": config.host, "port": port, "url": url, "pid": os.getpid()})
        return
    key = "?apiKey=…" if config.api_key or config.api_key_file else ""
    stdout.print(f"listening on {host}:{port}, state in {config.state}", markup=False)
    stdout.print("for zero-cache:", markup=False)
    stdout.print("  ZERO_UPSTREAM_TYPE=custom", markup=False)
    stdout.print(f"  ZERO_UPSTREAM_DB={url}{key}", markup=False)
