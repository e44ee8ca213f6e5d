"""`changesource demo`: the whole flow on one machine, with an upstream that is made for it.

With its page it runs until Ctrl-C: upstream, pipeline, endpoint, cache and application, and the page can stop and start
each process. With `--seconds` or `--no-page` it is a consumer in the terminal that ends by itself.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from changesource_cli.output import print_json, reported, stdout
from changesource_cli.signals import first_signal
from changesource_demo.progress import Report
from changesource_demo.terminal import TerminalDemo
from changesource_sdk.errors import ChangesourceError, ConfigurationError
from changesource_sdk.pipeline.spark.java import find_java

EPILOG = "\n\n".join(
    (
        "Examples:",
        "changesource demo",
        "changesource demo --listen 0.0.0.0:4800",
        "changesource demo --seconds 60 --keep ./demo --runner inline",
    )
)
SECONDS = 15.0
"""How long the terminal shows live changes, unless `--seconds` is set."""


def demo(
    page: Annotated[bool, typer.Option("--page/--no-page", help="Show it on a page, until Ctrl-C.")] = True,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Watch on the terminal for this long, without the page.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Address of the page; port 0 is any free one.")] = "127.0.0.1:0",
    runner: Annotated[
        str, typer.Option(help="spark, inline, or auto: Spark if Java and PySpark are installed.")
    ] = "auto",
    keep: Annotated[
        Path | None, typer.Option(help="Folder of the upstream and the state; temporary by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON, one per line.")] = False,
) -> None:
    """Run the whole flow on this machine and watch changes arrive."""
    with reported(as_json=as_json), _folder(keep) as folder:
        report, runner = _report(as_json), _available_runner(runner)
        if not page or seconds is not None:
            asyncio.run(TerminalDemo(folder, runner, seconds or SECONDS, report).run())
            return
        _check_cache()
        # Ctrl-C is how this demo is meant to end, so it is no failure: `make demo` ends without an error, too.
        asyncio.run(_run_with_page(folder, runner, _address(listen), report))


async def _run_with_page(folder: Path, runner: str, address: tuple[str, int], report: Report) -> None:
    """Run until a signal comes."""
    # The page's server needs aiohttp, which only the extra `cache` installs.
    from changesource_demo.with_page import run_with_page

    stop_signal = first_signal(signal.SIGHUP)
    await run_with_page(folder, runner, address, report, stop_signal)


def _report(as_json: bool) -> Report:
    def report(event: str, text: str, **fields: object) -> None:
        if as_json:
            print_json({"event": event, **fields})
        else:
            stdout.print(text, markup=False)

    return report


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="changesource-demo-") as folder:
        yield Path(folder)


def _available_runner(runner: str) -> str:
    """Return the runner to use; `auto` is `spark` if Java and PySpark are installed, else `inline`."""
    if runner not in ("auto", "spark", "inline"):
        raise ConfigurationError("bad-value", f"there is no runner {runner!r}", "--runner", "auto, spark or inline")
    if runner != "auto":
        return runner
    try:
        import pyspark  # noqa: F401

        find_java()
    except (ImportError, ChangesourceError):
        return "inline"
    return "spark"


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError("bad-value", f"{listen!r} is no address", "--listen", "give host:port")
    return host.strip("[]"), int(port)


def _check_cache() -> None:
    """Raise `ConfigurationError` if the extra `cache` is not installed."""
    missing = next((name for name in ("aiohttp", "xxhash") if importlib.util.find_spec(name) is None), None)
    if missing is not None:
        raise ConfigurationError(
            "missing-extra",
            f"the page and the cache need {missing}, which is not installed",
            "changesource demo",
            "pip install 'zero-changesource[cache]', or use --no-page",
        )
