"""The endpoint: one listening address for the stream, health, readiness, metrics and status.

`websockets` keeps the handshake, control frames and closing right; this module routes requests, starts a `Subscription`
for each stream, runs the background tasks, and stops all of it in order: no new streams, every open one to its
transaction boundary, then the files.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from changesource_sdk.changelog.open import open_store
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.acks import AckStore
from changesource_sdk.endpoint.auth import tls_context
from changesource_sdk.endpoint.flow import WRITE_LIMIT, PeerConnection, close
from changesource_sdk.endpoint.gate import Refusal, admit
from changesource_sdk.endpoint.live_tail import LiveTail
from changesource_sdk.endpoint.pages import Page, Pages
from changesource_sdk.endpoint.source import Source
from changesource_sdk.endpoint.status import Document, describe, set_gauges
from changesource_sdk.endpoint.subscription import Pace, Subscription
from changesource_sdk.endpoint.upkeep import LogEar, Pruner, persistently
from changesource_sdk.endpoint.upstream import MAX_BYTES, Ending
from changesource_sdk.errors import ChangesourceError, EndpointError
from changesource_sdk.observe.logs import Throttle, event, logger
from changesource_sdk.observe.metrics import EndpointMetrics
from changesource_sdk.system_tables import Permissions
from protocol.handshake import Handshake

log = logger("endpoint")

#: A refused consumer is back in 25 ms: one line per kind and interval says as much as forty a second.
LOG_INTERVAL = 10.0


class Endpoint:
    """Serves one log. Invariant: between `start` and `stop` every open stream is in `streams`."""

    def __init__(
        self,
        config: ServeConfig,
        permissions: Permissions,
        pipeline_health: Callable[[], Document] | None = None,
        publications: frozenset[str] | None = None,
        store: LogStore | None = None,
    ) -> None:
        self._store = store or open_store(config.state, config.log, config.log_schema, config.spool)
        self._store.layout.create()
        self.metrics = EndpointMetrics()
        self.streams: set[Subscription] = set()
        self._config = config
        self._pipeline_health = pipeline_health
        self._publications = publications
        self._reader = self._store.open_reader()
        self._subscribers = self._store.open_subscribers()
        self._acks = AckStore(self._subscribers)
        # The tail reads through a connection of its own, so that nobody's catching up is in its way.
        self._tail = LiveTail(self._store.open_reader(), config.tail_bytes, self.metrics)
        self._source = Source(self._store, self._reader, self._subscribers, self._tail, permissions)
        self._pages = Pages(self.metrics, config.api_key, self.is_ready, self.status)
        self._pace = Pace(config.status_interval, config.ping_interval, config.dead_after)
        self._throttle = Throttle(LOG_INTERVAL)
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._server: Server | None = None
        self._ear: LogEar | None = None

    async def start(self) -> int:
        """Listen and serve; the port in use. Raises `EndpointError` if the address cannot be had."""
        self._server = await self._listen()
        self._ear = LogEar(self._store.open_ear())
        pruner = Pruner(
            self._store.requests,
            self._reader,
            self._subscribers,
            self._config.prune_interval,
            self._config.subscriber_expiry,
        )
        ear = self._ear
        jobs = {"tail": lambda: self._tail.run(ear.wait), "acks": self._acks.run, "pruning": pruner.run}
        self._tasks = [asyncio.create_task(persistently(name, job, log, self._throttle)) for name, job in jobs.items()]
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _listen(self) -> Server:
        config = self._config
        try:
            return await serve(
                self._handle,
                config.host,
                config.port,
                process_request=self._process_request,
                create_connection=PeerConnection,
                compression="deflate" if config.compression else None,
                ssl=tls_context(config.tls_cert, config.tls_key),
                # Liveness is judged by `Flow`, which also counts what the peer takes.
                ping_interval=None,
                max_size=MAX_BYTES,
                write_limit=WRITE_LIMIT,
                server_header=None,
                logger=_quiet_library_logger(),
            )
        except OSError as error:
            raise _cannot_listen(error, config.listen) from None

    async def stop(self) -> None:
        """End every stream at a transaction boundary within the grace period, then let go of everything."""
        self._stopping.set()
        self._tail.wake()
        assert self._server is not None
        self._server.close(close_connections=False)
        try:
            async with asyncio.timeout(self._config.grace):
                await self._server.wait_closed()
        except TimeoutError:
            event(log, logging.WARNING, "consumers did not reach a boundary in time", grace=self._config.grace)
            for connection in list(self._server.all_connections):
                connection.transport.abort()
            await self._server.wait_closed()
        await self._release()

    async def _release(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.flush_acks()
        except ChangesourceError as error:
            # Consumers acknowledge again when they come back; until then a little more of the log is kept.
            event(log, logging.WARNING, "the last acknowledgements were not kept", error=str(error))
        if self._ear is not None:
            self._ear.close()
        self._tail.close()
        self._reader.close()
        self._subscribers.close()
        self._store.close()

    async def status(self) -> Document:
        """The document of `/statusz`; the gauges follow it."""
        known = await asyncio.to_thread(self._subscribers.all)
        document = await asyncio.to_thread(describe, self._store, self._reader, known, list(self.streams))
        set_gauges(document, self.metrics)
        if self._pipeline_health is not None:
            document["pipeline"] = self._pipeline_health()
        return document

    async def flush_acks(self) -> None:
        """Write the acks received so far to disk now."""
        await self._acks.flush()

    def is_ready(self) -> bool:
        """Whether there is a snapshot to serve."""
        return self._tail.state.generation > 0 and not self._stopping.is_set()

    async def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        authorization = request.headers.get("Authorization")
        page = await self._pages.answer(request.path, authorization)
        if page is not None:
            return _response(page)
        admitted = admit(request.path, authorization, self._config.api_key, self._publications)
        if isinstance(admitted, Refusal):
            self._refused(admitted, connection)
            return _response(Page(admitted.status, "text/plain; charset=utf-8", admitted.text.encode() + b"\n"))
        assert isinstance(connection, PeerConnection)
        connection.asked = admitted
        return None

    def _refused(self, refusal: Refusal, connection: ServerConnection) -> None:
        self.metrics.rejections.labels(refusal.reason).inc()
        held = self._throttle.admit(f"refused:{refusal.reason}")
        if held is not None:
            peer = str(connection.remote_address[0]) if connection.remote_address else None
            event(
                log,
                logging.WARNING,
                "request refused",
                status=refusal.status,
                why=refusal.text,
                peer=peer,
                repeated=held,
            )

    async def _handle(self, connection: ServerConnection) -> None:
        assert isinstance(connection, PeerConnection)
        assert connection.asked is not None
        handshake = connection.asked
        subscription = Subscription(
            connection, handshake, self._source, self._acks, self.metrics, self._pace, self._stopping
        )
        self.streams.add(subscription)
        self.metrics.connections.labels("initial" if handshake.is_initial else "resume").inc()
        self._log_stream("consumer connected", handshake, after=handshake.last_watermark)
        try:
            ending = await subscription.run()
        except Exception:
            # A bug of ours: this stream ends, the others go on, and the trace is for the bug report.
            log.exception("stream failed")
            ending = Ending(CloseCode.INTERNAL_ERROR, "internal error", "internal-error")
        finally:
            self.streams.discard(subscription)
        await self._end(connection, subscription, ending)

    async def _end(self, connection: PeerConnection, subscription: Subscription, ending: Ending) -> None:
        self.metrics.ended.labels(ending.kind).inc()
        self._log_stream(
            "consumer left", subscription.handshake, sent=subscription.sent, acked=subscription.acked, why=ending.reason
        )
        if ending.code is not None:
            await close(connection, ending.code, ending.reason)

    def _log_stream(self, what: str, handshake: Handshake, **fields: object) -> None:
        held = self._throttle.admit(f"{what}:{handshake.shard}")
        if held is not None:
            event(
                log,
                logging.INFO,
                what,
                app=handshake.app_id,
                shard=handshake.shard_num,
                **fields,
                repeated=held or None,
            )


def _response(page: Page) -> Response:
    headers = Headers()
    headers["Content-Type"] = page.content_type
    headers["Content-Length"] = str(len(page.body))
    headers["Connection"] = "close"
    reason = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 503: "Service Unavailable"}
    return Response(page.status, reason[page.status], headers, page.body)


def _quiet_library_logger() -> logging.Logger:
    # Every refused or broken request is a line or a stack trace there; ours says the same once per interval.
    quiet = logging.getLogger("changesource.websockets")
    quiet.setLevel(logging.CRITICAL)
    return quiet


def _cannot_listen(error: OSError, listen: str) -> EndpointError:
    if error.errno == errno.EADDRINUSE:
        return EndpointError(
            "port-in-use",
            "another process listens there",
            listen,
            "stop it, or choose another address with --listen (port 0 picks a free one)",
        )
    if error.errno == errno.EACCES:
        return EndpointError("port-forbidden", "this user may not listen there", listen, "use a port above 1023")
    return EndpointError("cannot-listen", f"cannot listen: {error.strerror or error}", listen, "correct --listen")
