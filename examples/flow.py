"""What the examples share: `changesource serve` and `changesource cache` over a store, for as long as a program runs.

Each example makes an upstream, runs this over it, and watches a live query with the Python client while it changes.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from changesource_demo.process import ManagedProcess

CHANGESOURCE = [sys.executable, "-m", "changesource_cli"]
INLINE = ("--runner", "inline")
START_SECONDS = 240


@asynccontextmanager
async def flow(
    adapter: str, settings: Mapping[str, str], *options: str, application: str | None = None
) -> AsyncIterator[str]:
    """Endpoint and cache; gives the cache's address. `options` are for `changesource serve`; `application` is where
    named queries and mutators are served.
    """
    with TemporaryDirectory(prefix="changesource-example-") as name:
        folder = Path(name)
        async with AsyncExitStack() as ending:
            endpoint = ManagedProcess(
                "endpoint", serve(adapter, settings, options, folder), output=folder / "endpoint.log"
            )
            ending.push_async_callback(endpoint.stop)
            await started(endpoint, folder)
            given = cache_settings(f"ws://127.0.0.1:{endpoint.port}/changes/v0/stream", folder, application)
            cache = ManagedProcess(
                "cache",
                lambda _: [*CHANGESOURCE, "cache", "--json"],
                settings=lambda port: {**given, "ZERO_PORT": str(port)},
                ready_event="ready",
                output=folder / "cache.log",
            )
            ending.push_async_callback(cache.stop)
            await started(cache, folder)
            yield f"http://127.0.0.1:{cache.port}"


def serve(
    adapter: str, settings: Mapping[str, str], options: Sequence[str], folder: Path
) -> Callable[[int], list[str]]:
    """The command a user would type, for a port."""
    pairs = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    # Without Spark unless an example asks for it: that starts faster.
    how = ["--permissions", "allow-all", "--state", str(folder / "state"), "--json", *(options or INLINE)]
    named = [adapter] if adapter else []  # else the options name a configuration file with sources
    return lambda port: [*CHANGESOURCE, "serve", *named, *pairs, *how, "--listen", f"127.0.0.1:{port}"]


def cache_settings(stream: str, folder: Path, application: str | None) -> dict[str, str]:
    """The variables of zero-cache, which are also those of `changesource cache`."""
    settings = {"ZERO_UPSTREAM_DB": stream, "ZERO_REPLICA_FILE": str(folder / "replica.db")}
    if application is not None:
        settings |= {"ZERO_QUERY_URL": f"{application}/query", "ZERO_MUTATE_URL": f"{application}/mutate"}
    return settings | {"CHANGESOURCE_CACHE_HOST": "127.0.0.1"}


async def started(process: ManagedProcess, folder: Path) -> None:
    """Start a process; if it does not come up, show what was said."""
    print(f"{process.name}: starting", flush=True)
    try:
        async with asyncio.timeout(START_SECONDS):
            await process.start()
    except Exception:
        show_logs(folder)
        raise
    print(f"{process.name}: running on port {process.port}", flush=True)


def show_logs(folder: Path) -> None:
    for log in sorted(folder.glob("*.log")):
        print(f"--- {log.stem} ---\n{log.read_text()[-4000:]}")
