"""Everything the example needs, with one command: `python run.py`, and Ctrl-C to end it.

Application server, endpoint and cache are started here, each in a process of its own; then the page is built with Vite
and shown. `--state DIR` keeps the to-do list for the next time.
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from asyncio.subprocess import Process
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path

from changesource_demo.process import ManagedProcess

HERE = Path(__file__).resolve().parent
CHANGESOURCE = [sys.executable, "-m", "changesource_cli"]


def processes(folder: Path, runner: str) -> tuple[ManagedProcess, ManagedProcess, ManagedProcess]:
    """The application's server, the endpoint with its pipeline, and the cache, in the order to start them."""
    store = str(folder / "todo.db")
    app = ManagedProcess(
        "app", lambda port: [sys.executable, str(HERE / "server.py"), store, str(port)], output=folder / "app.log"
    )

    def serve(port: int) -> list[str]:
        where = ["--set", f"path={store}", "--state", str(folder / "state"), "--listen", f"127.0.0.1:{port}"]
        return [*CHANGESOURCE, "serve", "sqlite", *where, "--runner", runner, "--json"]

    endpoint = ManagedProcess("endpoint", serve, output=folder / "endpoint.log")

    def settings(port: int) -> dict[str, str]:
        return {
            "ZERO_UPSTREAM_DB": f"ws://127.0.0.1:{endpoint.port}/changes/v0/stream",
            "ZERO_QUERY_URL": f"http://127.0.0.1:{app.port}/query",
            "ZERO_MUTATE_URL": f"http://127.0.0.1:{app.port}/mutate",
            "ZERO_REPLICA_FILE": str(folder / "replica.db"),
            "ZERO_PORT": str(port),
            "CHANGESOURCE_CACHE_HOST": "127.0.0.1",
        }

    cache = ManagedProcess(
        "cache",
        lambda _: [*CHANGESOURCE, "cache", "--json"],
        settings=settings,
        ready_event="ready",
        output=folder / "cache.log",
    )
    return app, endpoint, cache


def build_page(cache_url: str, target: Path) -> None:
    """Bundle the page for a cache; the packages are installed the first time."""
    if not (HERE / "node_modules").exists():
        subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=HERE, check=True)
    environment = {**os.environ, "VITE_CACHE_URL": cache_url}
    build = ["build", "--logLevel", "warn", "--outDir", str(target), "--emptyOutDir"]
    subprocess.run([*vite(), *build], cwd=HERE, env=environment, check=True)


def vite() -> list[str]:
    """Vite, run by Node itself, so that a signal meets nothing in between."""
    node = shutil.which("node")
    if node is None:
        raise SystemExit("this example needs Node 20.19 or newer, and npm")
    return [node, str(HERE / "node_modules" / "vite" / "bin" / "vite.js")]


async def run(folder: Path, runner: str, port: int, cache_url: str | None) -> None:
    stop_requested = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    async with AsyncExitStack() as ending:
        for process in processes(folder, runner):
            ending.push_async_callback(process.stop)
            await process.start()
            print(f"{process.name}: running on port {process.port}", flush=True)
        await asyncio.to_thread(build_page, cache_url or f"http://127.0.0.1:{process.port}", folder / "page")
        preview = ["preview", "--outDir", str(folder / "page"), "--port", str(port), "--strictPort"]
        page = await asyncio.create_subprocess_exec(
            *vite(), *preview, "--logLevel", "warn", cwd=HERE, start_new_session=True
        )
        ending.push_async_callback(end, page)
        await until_listening(page, port)
        print(f"page: http://127.0.0.1:{port}/", flush=True)
        await stop_requested.wait()


async def until_listening(process: Process, port: int) -> None:
    """Wait until the process takes connections; end everything if it gave up."""
    while process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise SystemExit(f"the page cannot be served on port {port}; give another with --port")


async def end(process: Process) -> None:
    """Stop a process that may have ended by itself."""
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--state", type=Path, help="folder to keep everything in; a temporary one if not given")
    options.add_argument("--runner", default="inline", choices=["inline", "spark"], help="what runs the pipeline")
    options.add_argument("--port", type=int, default=4173, help="port of the page")
    options.add_argument("--cache-url", help="where the page finds the cache, if there is a proxy in front of it")
    given = options.parse_args()
    with ExitStack() as ending:
        folder = given.state or Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="react-vite-")))
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(run(folder.resolve(), given.runner, given.port, given.cache_url))


if __name__ == "__main__":
    main()
