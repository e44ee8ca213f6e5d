"""The page's server: its files, the picture as a stream of events, and the buttons.

    GET  /                       the page
    GET  /setup                  where the cache is, for the page's clients
    GET  /events                 the picture, every half second (server-sent events)
    POST /stages/{name}/{verb}   start or stop a stage
    POST /writer                 {"perSecond": n}

The buttons want a header that other sites' pages cannot send without being asked about it first. And requests must name
this machine, by address or by a name of its own: another site's name that was made to point here is refused, or that
site's page could read everything as if it were this one.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from changesource_demo.flow import Flow
from changesource_sdk.errors import ChangesourceError

PAGE = Path(__file__).parent / "page"
HEADER = "X-Changesource-Demo"
EVERY_SECONDS = 0.5
MOST_WRITES = 500.0
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Console:
    """Serves one flow. Invariant: all pages are sent the same picture, made once."""

    def __init__(self, flow: Flow, run: str) -> None:
        self._flow = flow
        self._run = run
        self._picture = b""
        self._drawn = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; the port in use."""
        app = web.Application(middlewares=[_only_this_machine(host), _only_the_page])
        app.router.add_get("/", _index)
        app.router.add_get("/setup", self._setup)
        app.router.add_get("/events", self._events)
        app.router.add_post("/stages/{name}/{verb}", self._turn)
        app.router.add_post("/writer", self._write)
        app.router.add_static("/", PAGE)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self._keep(self._draw())
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _draw(self) -> None:
        while True:
            picture = await self._flow.picture()
            async with self._drawn:
                self._picture = f"data: {json.dumps(picture)}\n\n".encode()
                self._drawn.notify_all()
            await asyncio.sleep(EVERY_SECONDS)

    async def _setup(self, _: web.Request) -> web.Response:
        return web.json_response({"cachePort": self._flow.cache.port, "run": self._run})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(self._picture)
                async with self._drawn:
                    await self._drawn.wait()
        return response

    async def _turn(self, request: web.Request) -> web.Response:
        stage = self._flow.stages.get(request.match_info["name"])
        verb = request.match_info["verb"]
        if stage is None or verb not in ("start", "stop"):
            raise web.HTTPNotFound
        self._keep(self._do(stage.start if verb == "start" else stage.stop))
        return web.json_response({})

    async def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        # A stage that does not start is shown as stopped; its own words are in its file.
        with suppress(ChangesourceError):
            await work()

    async def _write(self, request: web.Request) -> web.Response:
        asked = (await request.json()).get("perSecond")
        if not isinstance(asked, int | float) or not 0 <= asked <= MOST_WRITES:
            raise web.HTTPBadRequest(text=f"perSecond is a number from 0 to {MOST_WRITES:g}")
        self._flow.writer.per_second = float(asked)
        return web.json_response({})


def _only_this_machine(host: str) -> Middleware:
    own = {"localhost", host.lower(), socket.gethostname().lower()}

    @web.middleware
    async def check(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if not _names_this_machine(request.headers.get("Host", ""), own):
            raise web.HTTPForbidden(text="open this page by the machine's address, or as localhost")
        return await handler(request)

    return check


def _names_this_machine(host: str, own: Collection[str]) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return name in own or name.endswith(".localhost") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def _index(_: web.Request) -> web.FileResponse:
    return web.FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-store"})


@web.middleware
async def _only_the_page(request: web.Request, handler: _Handler) -> web.StreamResponse:
    if request.method == "POST" and HEADER not in request.headers:
        raise web.HTTPForbidden(text=f"the header {HEADER} is missing")
    response = await handler(request)
    if not response.prepared:
        response.headers.setdefault("Cache-Control", "no-cache")
    return response
