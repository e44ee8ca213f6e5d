"""`changesource cache`: the reference cache in the foreground, configured by zero-cache's own variables.

The cache is another package, which knows nothing of this one and needs more than the SDK does; it is loaded when asked
for, by name.
"""

from __future__ import annotations

import asyncio
import os
import signal
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.table import Table

from changesource_cli.output import ExitCode, print_json, reported, stdout
from changesource_cli.signals import first_signal
from changesource_sdk.errors import ConfigurationError, EndpointError
from changesource_sdk.observe import logs
from protocol.redaction import redact

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


def cache(
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print every setting with its variable and value, and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output and logs.")] = False,
) -> None:
    """Serve Zero clients: replicate from a change source and sync queries to them."""
    with reported(as_json=as_json):
        configuration, errors = _part("config"), _part("errors")
        try:
            config = configuration.load(os.environ)
            if show_config:
                _print_config(configuration, config, as_json)
                return
            raise typer.Exit(asyncio.run(_run(config, as_json)))
        except errors.BadSetting as error:
            raise ConfigurationError(error.code, error.message, error.where, error.fix) from None
        except errors.CacheError as error:
            raise EndpointError(error.code, error.message, error.where, error.fix) from None


def _part(name: str) -> Any:
    try:
        return import_module(f"reference_cache.{name}")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "missing-extra",
            f"the cache needs {error.name}, which is not installed",
            "changesource cache",
            "pip install 'zero-changesource[cache]'",
        ) from None


async def _run(config: Any, as_json: bool) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    logs.configure(form="json" if as_json else config.log_format, level=_LEVELS.get(config.log_level, config.log_level))
    told_to_stop = first_signal()
    made = _part("cache").Cache(config)
    port = await made.start()
    _announce("listening", config, port, as_json)
    try:
        if await _until(told_to_stop, made.wait_until_ready()):
            _announce("ready", config, port, as_json)
            await _until(told_to_stop, made.wait_for_failure())
    finally:
        await made.stop()
    return ExitCode.INTERRUPTED if told_to_stop.result() == signal.SIGINT else ExitCode.OK


async def _until(told_to_stop: asyncio.Future[signal.Signals], work: Any) -> bool:
    """Whether the work came to its end before a signal; raises what it raises."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((told_to_stop, task), return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        return False
    await task
    return True


def _announce(what: str, config: Any, port: int, as_json: bool) -> None:
    if as_json:
        print_json({"event": what, "host": config.host, "port": port, "pid": os.getpid()})
    elif what == "listening":
        stdout.print(f"listening on {config.host}:{port}, replica in {config.replica_file}", markup=False)
        if config.unused:
            stdout.print(f"set, but not used here: {', '.join(config.unused)}", markup=False)
    else:
        stdout.print("ready for clients", markup=False)


def _print_config(configuration: Any, config: Any, as_json: bool) -> None:
    rows = [_shown(each, config) for each in configuration.settings()]
    if as_json:
        settings = {variable: value for variable, value, _ in rows}
        print_json({"settings": settings, "unused": list(config.unused)})
        return
    table = Table("variable", "value", "for", box=None)
    for row in rows:
        table.add_row(*row)
    stdout.print(table)
    if config.unused:
        stdout.print(f"set, but not used here: {', '.join(config.unused)}", markup=False)


def _shown(setting: Any, config: Any) -> tuple[str, str, str]:
    value = getattr(config, setting.name)
    if isinstance(value, tuple):
        value = ",".join(value)
    text = "" if value is None else "…" if setting.metadata["secret"] and value else redact(str(value))
    return setting.metadata["variable"], text, setting.metadata["about"]
