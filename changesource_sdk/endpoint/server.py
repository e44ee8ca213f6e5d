"""The endpoint: one listening address for the stream, health, readiness, metrics and status.

The `websockets` library does the handshake, control frames and closing. This module routes requests, starts a
`Subscription` for each stream, runs the background tasks, and stops everything in order: no new streams, every open
stream at its next transaction boundary, then the files. A host name may have several addresses: each has a server of
its own.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import ExitStack

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from changesource_sdk.changelog.open import open_store
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.access.address_limits import AddressLimits
from changesource_sdk.endpoint.access.auth import AccessRules, certificate_name, tls_context
from changesource_sdk.endpoint.access.gate import Gate, Incoming, Refusal
from changesource_sdk.endpoint.access.keys import KeyRing
from changesource_sdk.endpoint.access.listener import BACKLOG, ListeningSocket, listening_sockets
from changesource_sdk.endpoint.pages import EndpointPages
from changesource_sdk.endpoint.seed_claims import SeedClaims
from changesource_sdk.endpoint.status import Document, describe, set_gauges
from changesource_sdk.endpoint.stream.acks import AckStore
from changesource_sdk.endpoint.stream.flow import WRITE_LIMIT, PeerConnection, close
from changesource_sdk.endpoint.stream.live_tail import LiveTail
from changesource_sdk.endpoint.stream.receive import Ending
from changesource_sdk.endpoint.stream.source import SubscriptionSource
from changesource_sdk.endpoint.stream.subscription import Intervals, Subscription
from changesource_sdk.endpoint.upkeep import KeyWatch, LogWakeups, Pruner, persistently
from changesource_sdk.errors import ChangesourceError, EndpointError
from changesource_sdk.observe.metrics import EndpointMetrics
from changesource_sdk.policies.origins import BrowserRules
from changesource_sdk.system_tables import Permissions
from protocol.codec import MAX_UPSTREAM_BYTES
from protocol.stream.handshake import Handshake
from service_kit.addresses import is_loopback
from service_kit.listening import accept_failures, cannot_listen
from service_kit.logs import Throttle, event, logger, quiet_logger
from service_kit.pages import Page, response

log = logger("endpoint")

#: Seconds. A refused consumer retries every 25 ms, so each kind of line is logged once per interval.
LOG_INTERVAL = 10.0


class Endpoint:
    """Serves one log. Invariant: between `start` and `stop` every open stream is in `streams`."""

    def __init__(
        self,
        config: ServeConfig,
        permissions: Permissions,
        pipeline_health: Callable[[], Document] | None = None,
        publications: frozenset[str] | None = None,
        log_store: LogStore | None = None,
    ) -> None:
        self._log_store = log_store or open_store(config.state, config.log, config.log_schema, config.spool)
        self._log_store.layout.create()
        self.metrics = EndpointMetrics()
        # Written by `_handle`, on the event loop.
        self.streams: set[Subscription] = set()
        self._config = config
        self._pipeline_health = pipeline_health
        self._keys = KeyRing(config.api_key, config.api_key_file)
        access = AccessRules(self._keys, config.tls_client_ca is not None)
        browsers = BrowserRules.of(config.host, config.allowed_origins, config.allowed_hosts)
        self._gate = Gate(access, browsers, publications)
        self._reader = self._log_store.open_log()
        self._coordination = self._log_store.open_coordination()
        if self._log_store.is_local:
            # Opens the record of consumers: a disk that has no room for it is reported now, not at the first consumer.
            # A log elsewhere may come up after the endpoint.
            self._coordination.consumers("", 0)
        self._acks = AckStore(self._coordination)
        # The tail reads through a connection of its own, so that consumers that catch up do not delay it.
        self._tail = LiveTail(
            self._log_store.open_log(), config.tail_bytes, self.metrics, reads_on_loop=self._log_store.is_local
        )
        self._source = SubscriptionSource(self._log_store, self._reader, self._coordination, self._tail, permissions)
        self._pages = EndpointPages(
            self.metrics, self._gate, self.is_ready, self.status, SeedClaims(self._reader, self._coordination)
        )
        self._intervals = Intervals(config.status_interval, config.ping_interval, config.dead_after)
        self._throttle = Throttle(LOG_INTERVAL)
        self._stopping = asyncio.Event()
        # The background tasks; set by `start`, cancelled by `stop`.
        self._tasks: list[asyncio.Task[None]] = []
        # One per listening address; filled by `start`.
        self._servers: list[Server] = []
        # What `stop` undoes.
        self._on_stop = ExitStack()
        # Set by `start`, closed by `stop`.
        self._wakeups: LogWakeups | None = None

    async def start(self) -> int:
        """Listen and serve; returns the port in use. Raises `EndpointError`."""
        await self._listen()
        self._warn_if_open()
        self._wakeups = LogWakeups(self._log_store.listen())
        pruner = Pruner(
            self._log_store.requests,
            self._reader,
            self._coordination,
            self._config.prune_interval,
            self._config.subscriber_expiry,
        )
        wakeups = self._wakeups
        jobs = {"tail": lambda: self._tail.run(wakeups.wait), "acks": self._acks.run, "pruning": pruner.run}
        jobs["reading API keys"] = KeyWatch(self._keys, self._end_withdrawn).run
        self._tasks = [asyncio.create_task(persistently(name, job, log, self._throttle)) for name, job in jobs.items()]
        port: int = self._servers[0].sockets[0].getsockname()[1]
        return port

    async def _listen(self) -> None:
        config = self._config
        context = tls_context(config.tls_cert, config.tls_key, config.tls_client_ca)
        limits = AddressLimits(config.connections_per_address, config.connection_rate_per_address)
        try:
            for listening in listening_sockets(config.host, config.port, limits, self._not_accepted):
                self._servers.append(await self._serve(listening, context))
        except OSError as error:
            raise cannot_listen(error, config.listen, EndpointError, _CANNOT_LISTEN) from None
        # `_not_accepted` was called for each of them.
        self._on_stop.enter_context(accept_failures(asyncio.get_running_loop(), lambda error: None))

    async def _serve(self, listening: ListeningSocket, context: ssl.SSLContext | None) -> Server:
        return await serve(
            self._handle,
            sock=listening,
            backlog=BACKLOG,
            process_request=self._process_request,
            create_connection=PeerConnection,
            compression="deflate" if self._config.compression else None,
            ssl=context,
            # `Flow` checks liveness; it also counts the bytes that the peer takes.
            ping_interval=None,
            max_size=MAX_UPSTREAM_BYTES,
            write_limit=WRITE_LIMIT,
            server_header=None,
            # It logs every refused or broken request; ours logs one per kind and interval.
            logger=quiet_logger("websockets"),
        )

    def _warn_if_open(self) -> None:
        config = self._config
        if self._gate.access.is_open and not is_loopback(config.host):
            event(
                log,
                logging.WARNING,
                "anyone who can reach this address can read everything that is served",
                listen=config.listen,
                fix="give --api-key-file or --tls-client-ca, or listen on 127.0.0.1",
            )

    async def stop(self) -> None:
        """End every stream at its next transaction boundary, abort those that exceed the grace period, close all."""
        self._stopping.set()
        self._tail.wake()
        for server in self._servers:
            server.close(close_connections=False)
        closed = asyncio.gather(*(server.wait_closed() for server in self._servers))
        try:
            async with asyncio.timeout(self._config.grace):
                await asyncio.shield(closed)
        except TimeoutError:
            event(log, logging.WARNING, "consumers did not reach a boundary in time", grace=self._config.grace)
            for connection in self._connections():
                connection.transport.abort()
            await closed
        self._on_stop.close()
        await self._release()

    def _connections(self) -> list[ServerConnection]:
        return [connection for server in self._servers for connection in server.all_connections]

    async def _end_withdrawn(self) -> None:
        """Close the streams that were opened with a key that is no longer valid."""
        event(log, logging.INFO, "API keys read again", keys=",".join(self._keys.names))
        withdrawn = [
            connection
            for connection in self._connections()
            if isinstance(connection, PeerConnection)
            and connection.admission is not None
            and (key := connection.admission.caller.key) is not None
            and not self._keys.holds(key)
        ]
        await asyncio.gather(*(close(each, CloseCode.POLICY_VIOLATION, "API key withdrawn") for each in withdrawn))

    async def _release(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.flush_acks()
        except ChangesourceError as error:
            # Not fatal: consumers acknowledge again after reconnecting; until then more of the log is kept.
            event(log, logging.WARNING, "the last acknowledgements were not kept", error=str(error))
        if self._wakeups is not None:
            self._wakeups.close()
        self._tail.close()
        self._reader.close()
        self._coordination.close()
        self._log_store.close()

    async def status(self) -> Document:
        """The document of `/statusz`; also updates the gauges of `/metrics`."""
        known = await asyncio.to_thread(self._coordination.consumers)
        document = await asyncio.to_thread(describe, self._log_store, self._reader, known, list(self.streams))
        set_gauges(document, self.metrics)
        if self._pipeline_health is not None:
            document["pipeline"] = self._pipeline_health()
        return document

    async def flush_acks(self) -> None:
        """Write the acknowledgements received so far to disk now."""
        await self._acks.flush()

    def is_ready(self) -> bool:
        """Whether there is a snapshot to serve, and the endpoint is not stopping."""
        return self._tail.state.generation > 0 and not self._stopping.is_set()

    async def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        incoming = _incoming(connection, request)
        answer = self._gate.refuse_browser(incoming) or await self._pages.answer(incoming)
        if answer is None:
            admitted = self._gate.admit(incoming)
            if not isinstance(admitted, Refusal):
                assert isinstance(connection, PeerConnection)
                connection.admission = admitted
                return None
            answer = admitted
        if isinstance(answer, Refusal):
            self._refused(answer, connection)
            answer = Page.text(answer.status, answer.text)
        return response(answer)

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
                repeated=held or None,
            )

    def _not_accepted(self, reason: str, peer: str) -> None:
        """Count and log a connection that was closed before its request was read."""
        self.metrics.rejections.labels(reason).inc()
        held = self._throttle.admit(f"not accepted:{reason}")
        if held is not None:
            fix = _NOT_ACCEPTED[reason]
            event(
                log,
                logging.WARNING,
                "connection refused",
                why=reason,
                peer=peer or None,
                fix=fix,
                repeated=held or None,
            )

    async def _handle(self, connection: ServerConnection) -> None:
        assert isinstance(connection, PeerConnection)
        assert connection.admission is not None
        handshake, caller = connection.admission.handshake, connection.admission.caller
        subscription = Subscription(
            connection, handshake, self._source, self._acks, self.metrics, self._intervals, self._stopping
        )
        self.streams.add(subscription)
        self.metrics.connections.labels("initial" if handshake.is_initial else "resume").inc()
        key = caller.key.name if caller.key else None
        if key is not None:
            self.metrics.key_uses.labels(key).inc()
        after = handshake.last_watermark
        self._log_stream("consumer connected", handshake, after=after, key=key, certificate=caller.certificate)
        try:
            ending = await subscription.run()
        except Exception:
            # A bug: log the trace and end this stream only.
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


#: What to do about an address that cannot be listened on, by code.
_CANNOT_LISTEN = {
    "port-in-use": "stop it, or choose another address with --listen (port 0 picks a free one)",
    "port-forbidden": "use a port above 1023",
    "cannot-listen": "correct --listen",
}
#: The fix in the log line for connections that were closed before their request was read.
_NOT_ACCEPTED = {
    "connections": "find out what opens so many, or raise --connections-per-address",
    "rate": "find out what connects so often, or raise --connection-rate-per-address",
    "descriptors": "raise the limit of open files (ulimit -n, LimitNOFILE=)",
}


def _incoming(connection: ServerConnection, request: Request) -> Incoming:
    headers = request.headers
    # Repeated `Host` or `Authorization` headers are ignored: no honest client sends them.
    (host, authorization) = (
        values[0] if len(values := headers.get_all(name)) == 1 else None for name in ("Host", "Authorization")
    )
    certificate = certificate_name(connection.transport.get_extra_info("peercert"))
    return Incoming(request.path, host, tuple(headers.get_all("Origin")), authorization, certificate)
