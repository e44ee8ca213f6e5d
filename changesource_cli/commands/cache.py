"""`changesource cache`: the reference cache in the foreground, configured by zero-cache's own variables.

The modules of the cache are imported inside functions: `changesource --help` does not need them, and some need packages
that only the extra `cache` installs.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import Field
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from changesource_cli.output import ExitCode, print_json, reported, stdout
from changesource_cli.signals import first_signal
from changesource_sdk.errors import ConfigurationError, EndpointError
from protocol.redaction import redact
from service_kit import logs

if TYPE_CHECKING:
    from reference_cache.cache import Cache
    from reference_cache.config import CacheConfig

EPILOG = "\n\n".join(
    (
        "Settings are zero-cache's variables (ZERO_UPSTREAM_DB, ZERO_PORT, ZERO_REPLICA_FILE, ZERO_QUERY_URL, …); "
        "--show-config lists those in use.",
        "Examples:",
        "ZERO_UPSTREAM_DB=ws://127.0.0.1:4810/changes/v0/stream changesource cache",
        "ZERO_UPSTREAM_DB=… ZERO_PORT=4848 ZERO_REPLICA_FILE=/var/zero/replica.db changesource cache --json",
        "changesource cache --show-config",
    )
)
_LEVELS = {"warn": "warning"}
"""zero-cache's names of log levels, where Python's differ."""


def cache(
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print every setting with its variable and value, and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output and logs.")] = False,
) -> None:
    """Serve Zero clients: replicate from a change source and sync queries to them."""
    from reference_cache.config import load

    with reported(as_json=as_json), _translated_errors():
        config = load(os.environ)
        if show_config:
            _print_config(config, as_json)
            return
        raise typer.Exit(asyncio.run(_run(config, as_json)))


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise errors of the cache as those of the SDK, which have exit codes."""
    from reference_cache.errors import BadSetting, CacheError

    try:
        yield
    except BadSetting as error:
        raise ConfigurationError(error.code, error.message, error.where, error.fix) from None
    except CacheError as error:
        raise EndpointError(error.code, error.message, error.where, error.fix) from None


async def _run(config: CacheConfig, as_json: bool) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    logs.configure(form="json" if as_json else config.log_format, level=_LEVELS.get(config.log_level, config.log_level))
    stop_signal = first_signal()
    running = _new_cache(config)
    port = await running.start()
    _announce("listening", config, port, as_json)
    try:
        if await _finished(running.wait_until_ready(), stop_signal):
            _announce("ready", config, port, as_json)
            await _finished(running.wait_for_failure(), stop_signal)
    finally:
        await running.stop()
    return ExitCode.INTERRUPTED if stop_signal.result() == signal.SIGINT else ExitCode.OK


def _new_cache(config: CacheConfig) -> Cache:
    try:
        from reference_cache.cache import Cache
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "missing-extra",
            f"the cache needs {error.name}, which is not installed",
            "changesource cache",
            "pip install 'zero-changesource[cache]'",
        ) from None
    return Cache(config)


async def _finished(work: Coroutine[object, object, None], stop_signal: asyncio.Future[signal.Signals]) -> bool:
    """Run until `work` is done (True) or the signal comes (False, and `work` is cancelled). Raises what `work` does."""
    task = asyncio.create_task(work)
    await asyncio.wait((stop_signal, task), return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        return False
    await task
    return True


def _announce(event: Literal["listening", "ready"], config: CacheConfig, port: int, as_json: bool) -> None:
    if as_json:
        print_json({"event": event, "host": config.host, "port": port, "pid": os.getpid()})
    elif event == "listening":
        stdout.print(f"listening on {config.host}:{port}, replica in {config.replica_file}", markup=False)
        if config.unused:
            stdout.print(f"set, but not used here: {', '.join(config.unused)}", markup=False)
    else:
        stdout.print("ready for clients", markup=False)


def _print_config(config: CacheConfig, as_json: bool) -> None:
    from reference_cache.config import settings

    rows = [_row(setting, config) for setting in settings()]
    if as_json:
        print_json({"settings": {variable: value for variable, value, _ in rows}, "unused": list(config.unused)})
        return
    table = Table("variable", "value", "for", box=None)
    for row in rows:
        table.add_row(*row)
    stdout.print(table)
    if config.unused:
        stdout.print(f"set, but not used here: {', '.join(config.unused)}", markup=False)


def _row(setting: Field[object], config: CacheConfig) -> tuple[str, str, str]:
    """Return the variable of a setting, its value (secrets are masked), and what it is for."""
    value = getattr(config, setting.name)
    if isinstance(value, tuple):
        value = ",".join(value)
    text = "" if value is None else "…" if setting.metadata["secret"] and value else redact(str(value))
    return setting.metadata["variable"], text, setting.metadata["about"]
