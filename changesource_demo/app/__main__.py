"""`python -m changesource_demo.app DATABASE PORT`: serve the application until SIGTERM or SIGINT.

Prints one JSON line when it listens. Port 0 is any free one.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from aiohttp import web

from changesource_demo.app.tracker import SCHEMA, mutators, queries
from reference_cache.app_server import zero_routes
from reference_cache.app_server.stores.sqlite import SqliteStore


async def serve(store: SqliteStore, port: int) -> None:
    """Answer the cache's requests until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    app = web.Application()
    app.add_routes(zero_routes(queries, mutators, store))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print(json.dumps({"event": "listening", "port": runner.addresses[0][1]}), flush=True)
        await stopping.wait()
    finally:
        await runner.cleanup()


def main(path: str, port: str) -> None:
    """Open the database and serve it."""
    store = SqliteStore(path, SCHEMA)
    try:
        asyncio.run(serve(store, int(port)))
    finally:
        store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
