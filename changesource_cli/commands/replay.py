"""`changesource replay`: serve a log from an earlier watermark, so that a new cache receives its transactions again.

The log is only read, and its pipeline may run. What caches acknowledge is kept in a temporary folder.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from changesource_cli.commands import serve
from changesource_cli.output import ExitCode, print_json, reported, stdout
from changesource_cli.signals import first_signal
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.open import open_existing
from changesource_sdk.changelog.sqlite.wakeup import WakeupSender
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.server import Endpoint
from changesource_sdk.endpoint.stream.subscription import Phase
from changesource_sdk.replaying.opener import Opener, checked_watermark
from changesource_sdk.replaying.store import ReplayStore
from changesource_sdk.replaying.window import ReplayWindow
from changesource_sdk.system_tables import Permissions
from changesource_sdk.verifying.log_side import base_snapshot
from service_kit import logs

EPILOG = "\n\n".join(
    (
        "Options not given here come from the TOML file and from CHANGESOURCE_* variables, as for serve.",
        "Examples:",
        "changesource replay --state ./changesource-state --listen 127.0.0.1:4811",
        "changesource replay --state ./changesource-state --from 9ho7o8emv2m --rate 5 --stay",
    )
)

FOLLOWING = (Phase.CATCHING_UP, Phase.LIVE)


def replay(
    start: Annotated[
        str, typer.Option("--from", help="Watermark to begin at, or 'start' for the oldest snapshot there is.")
    ] = "start",
    end: Annotated[str, typer.Option("--to", help="Watermark to end at, or 'head' for the newest now.")] = "head",
    rate: Annotated[float, typer.Option(min=0, help="Transactions per second; 0 is as fast as it goes.")] = 0,
    stay: Annotated[bool, typer.Option("--stay", help="Continue serving when a cache has everything.")] = False,
    listen: Annotated[str | None, serve.flag("listen")] = None,
    state: Annotated[Path | None, serve.flag("state")] = None,
    log: Annotated[str | None, serve.flag("log")] = None,
    log_schema: Annotated[str | None, serve.flag("log_schema")] = None,
    spool: Annotated[str | None, serve.flag("spool")] = None,
    api_key: Annotated[str | None, serve.flag("api_key")] = None,
    permissions: Annotated[str | None, serve.flag("permissions")] = None,
    config: Annotated[Path | None, typer.Option(envvar=serve.CONFIG_VARIABLE, help="TOML file, as for serve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output and logs.")] = False,
) -> None:
    """Serve a log again from any watermark: a fresh cache starts there and sees every later transaction."""
    with reported(as_json=as_json):
        flags: dict[str, object] = {"listen": listen, "state": state, "log": log, "log_schema": log_schema}
        flags |= {"spool": spool, "api_key": api_key, "permissions": permissions}
        made = serve.effective_config(config, flags).config
        logs.configure(form="json" if as_json else made.log_format, level=made.log_level)
        log_store = open_existing(made.state, made.log, made.log_schema, made.spool)
        try:
            reader = log_store.open_log()
            window, last = _window(log_store, reader, start, end)
            code = asyncio.run(_run(made, log_store, reader, window, last, rate, stay=stay, as_json=as_json))
        finally:
            log_store.close()
        raise typer.Exit(code)


def _window(log_store: LogStore, reader: Log, start: str, end: str) -> tuple[ReplayWindow, str]:
    """Return what a cache can read at first, and the watermark at which the replay ends."""
    last = reader.state().head if end == "head" else end
    if start == "start":
        available = [record for record in reader.snapshots() if log_store.files.holds(record.directory)]
        base = available[0] if available else base_snapshot(log_store, reader, last)
        first = base.watermark
    else:
        base = base_snapshot(log_store, reader, start)
        first = checked_watermark(reader, base.watermark, start)
    return ReplayWindow(base, first), checked_watermark(reader, first, last)


async def _run(
    config: ServeConfig,
    log_store: LogStore,
    reader: Log,
    window: ReplayWindow,
    end: str,
    rate: float,
    *,
    stay: bool,
    as_json: bool,
) -> int:
    stop_signal = first_signal()
    with tempfile.TemporaryDirectory(prefix="changesource-replay-") as folder:
        replayed = ReplayStore(log_store, window, Path(folder))
        own = replace(config, state=Path(folder))
        endpoint = Endpoint(own, Permissions.parse(config.permissions), log_store=replayed)
        port = await endpoint.start()
        opener = Opener(reader, window, end, rate, WakeupSender(replayed.layout.pokes))
        _announce(f"ws://{config.host}:{port}/changes/v0/stream", window.head, end, as_json=as_json)
        work = asyncio.create_task(_work(opener, endpoint, replayed, stay=stay))
        try:
            await asyncio.wait((stop_signal, work), return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            (ended,) = await asyncio.gather(work, return_exceptions=True)
            await endpoint.stop()
            reader.close()
    if stop_signal.done():
        return ExitCode.INTERRUPTED
    if isinstance(ended, BaseException):
        raise ended
    _announce_end(opener, as_json=as_json)
    return ExitCode.OK


async def _work(opener: Opener, endpoint: Endpoint, log_store: ReplayStore, *, stay: bool) -> None:
    await opener.run(lambda: any(stream.phase in FOLLOWING for stream in endpoint.streams))
    with closing(log_store.open_coordination()) as coordination:
        await opener.until_acknowledged(coordination)
    if stay:
        await asyncio.Event().wait()


def _announce(url: str, start: str, end: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"event": "listening", "url": url, "from": start, "to": end})
    else:
        stdout.print(f"replaying {start} to {end} at {url}; point a fresh cache there", markup=False)


def _announce_end(opener: Opener, *, as_json: bool) -> None:
    if as_json:
        print_json({"event": "done", "at": opener.end, "transactions": opener.opened})
    else:
        stdout.print(f"a cache has everything up to {opener.end}: {opener.opened} transactions", markup=False)
