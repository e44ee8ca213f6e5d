"""The HTTP server of the demo's page: its files, the picture as a stream of events, and the buttons.

    GET  /                       the page
    GET  /setup                  the cache's port, for the page's clients
    GET  /events                 the picture, every half second (server-sent events)
    POST /stages/{name}/{verb}   start or stop a process
    POST /writer                 {"perSecond": n}

POST requests need a header that pages of other sites cannot send without a CORS preflight, which is not answered. Every
request must name this machine in `Host`, by address or by one of its names: otherwise a site whose name was made to
resolve to this machine (DNS rebinding) could read everything as if it were this page.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from changesource_demo.flow import DemoFlow
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.policies.origins import is_address

PAGE = Path(__file__).parent / "page"
HEADER = "X-Changesource-Demo"
INTERVAL_SECONDS = 0.5
MAX_WRITES_PER_SECOND = 500.0
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """Serves one flow. Invariant: the picture is drawn once per interval, and all pages get the same bytes."""

    def __init__(self, flow: DemoFlow, run: str) -> None:
        """`run` names this run, so that a page that was left open notices a new one."""
        self._flow = flow
        self._run = run
        # The newest picture as a server-sent event; replaced by `_draw`, which notifies the condition.
        self._picture = b""
        self._drawn = asyncio.Condition()
        # `_draw`, and the starts and stops that buttons requested; each removes itself when it is done.
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port in use."""
        app = web.Application(middlewares=[_only_this_machine(host), _only_the_page])
        app.router.add_get("/", _index)
        app.router.add_get("/setup", self._setup)
        app.router.add_get("/events", self._events)
        app.router.add_post("/stages/{name}/{verb}", self._switch)
        app.router.add_post("/writer", self._set_write_rate)
        app.router.add_static("/", PAGE)
        # The running HTTP server; set once, here, and closed by `stop`.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self._run_in_background(self._draw())
        bound_port: int = self._runner.addresses[0][1]
        return bound_port

    async def stop(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()

    def _run_in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _draw(self) -> None:
        while True:
            picture = await self._flow.picture()
            async with self._drawn:
                self._picture = f"data: {json.dumps(picture)}\n\n".encode()
                self._drawn.notify_all()
            await asyncio.sleep(INTERVAL_SECONDS)

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

    async def _switch(self, request: web.Request) -> web.Response:
        """Start or stop a process; answers at once, the picture shows when it is done."""
        process = self._flow.processes.get(request.match_info["name"])
        verb = request.match_info["verb"]
        if process is None or verb not in ("start", "stop"):
            raise web.HTTPNotFound
        self._run_in_background(_quietly(process.start if verb == "start" else process.stop))
        return web.json_response({})

    async def _set_write_rate(self, request: web.Request) -> web.Response:
        rate = (await request.json()).get("perSecond")
        if not isinstance(rate, int | float) or not 0 <= rate <= MAX_WRITES_PER_SECOND:
            raise web.HTTPBadRequest(text=f"perSecond is a number from 0 to {MAX_WRITES_PER_SECOND:g}")
        self._flow.writer.per_second = float(rate)
        return web.json_response({})


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    # A process that does not start is shown as stopped; its own messages are in its file.
    with suppress(ChangesourceError):
        await work()


def _only_this_machine(host: str) -> Middleware:
    own_names = {"localhost", host.lower(), socket.gethostname().lower()}

    @web.middleware
    async def check(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if not _names_this_machine(request.headers.get("Host", ""), own_names):
            raise web.HTTPForbidden(text="open this page by the machine's address, or as localhost")
        return await handler(request)

    return check


def _names_this_machine(host: str, own_names: Collection[str]) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return name in own_names or name.endswith(".localhost") or is_address(name)


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
