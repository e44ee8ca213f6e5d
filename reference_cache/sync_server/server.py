"""The sync server: one listening address for client sockets and the HTTP pages.

The `websockets` library does handshakes, control frames and closing. This module admits clients, closes a client's
older sockets once the view syncer has admitted a newer one, and stops in order: no new sockets, close frames to all
clients, then abort the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from websockets import http11
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from protocol.errors import HandshakeError
from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.handshake import MAX_VERSION, ConnectRequest, parse_request
from reference_cache.app_client.credentials import address
from reference_cache.credentials import Credentials
from reference_cache.errors import CacheError
from reference_cache.sync_server.accept import (
    ACCEPT_AT_ONCE,
    Connections,
    FailureReports,
    connections_allowed,
    lengthen_queue,
)
from reference_cache.sync_server.access import auth
from reference_cache.sync_server.access.auth import Identity
from reference_cache.sync_server.access.origins import admits_origin, is_local
from reference_cache.sync_server.connection import ServerServices, SyncConnection
from reference_cache.sync_server.pages import Pages
from reference_cache.sync_server.socket import TRANSPORT_BYTES, SyncSocket
from reference_cache.sync_server.upkeep import Upkeep
from service_kit.addresses import is_loopback
from service_kit.listening import accept_failures, cannot_listen, tls_context
from service_kit.logs import event, logger, quiet_logger
from service_kit.pages import Page, response

log = logger("cache.server")

HEADER_BYTES = 64 * 1024
"""Longest header line. The subprotocol header holds the init message, of up to 8 KB, and browsers add cookies."""

WAITING_SOCKETS = 4096
"""The kernel's queue of connections to accept. After a restart all clients connect at once; a connection that does not
fit is dropped silently, and its kernel tries again a second later."""

WAITING_FRAMES = 4
"""How many frames of one client the library queues before it stops reading the socket."""

STOP_SECONDS = 5.0
READY_SECONDS = 5.0
"""How long a handshake waits for a cache that is not ready; the official client allows ten seconds."""

_REALM = "zero-cache"
_TLS_VARIABLES = "CHANGESOURCE_CACHE_TLS_CERT, CHANGESOURCE_CACHE_TLS_KEY"
_CANNOT_LISTEN = {
    "port-in-use": "stop it, or set ZERO_PORT",
    "port-forbidden": "set ZERO_PORT above 1023",
    "cannot-listen": "correct ZERO_PORT",
}
"""What to do about an address that cannot be listened on, by code."""


class SyncServer:
    """Serves clients on one address. Invariant: `open_clients` holds every open connection."""

    def __init__(
        self, services: ServerServices, ready: asyncio.Event, more_status: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        # Written by `_enter` and `_exit`, as are the next attribute and `_groups`.
        self.open_clients: set[SyncConnection] = set()
        # The open connections of each client, by group id and client id, in the order they were opened.
        self._of_client: dict[tuple[str, str], list[SyncConnection]] = {}
        self._services = services
        self._ready = ready
        self._more_status = more_status
        self._pages = Pages(services.metrics, services.config.admin_password, ready.is_set, self.status)
        self._upkeep = Upkeep(lambda: self.open_clients, services.transformer, services.config)
        # Client group id -> number of its connections.
        self._groups: Counter[str] = Counter()
        # Sockets whose handshake is done, also those not admitted yet; written by `_handle`.
        self._sockets = 0
        self._limit = connections_allowed(services.config.max_connections)
        refused = services.metrics.refused.labels("connections").inc
        self._connections = Connections(self._limit, services.config.max_connections_per_address, refused)
        # The upkeep; set by `start`.
        self._tasks: list[asyncio.Task[None]] = []
        # Set by `start`.
        self._server: Server | None = None
        # What `stop` undoes.
        self._ended = ExitStack()

    async def start(self) -> int:
        """Listen; returns the port in use. Raises `CacheError`."""
        # The supported way is the environment variable WEBSOCKETS_MAX_LINE_LENGTH, but the library reads it when it is
        # imported, which is before this module can set it. The library's parser reads the constant for every line, so
        # setting that works; a higher value from the environment stays.
        http11.MAX_LINE_LENGTH = max(http11.MAX_LINE_LENGTH, HEADER_BYTES)
        config = self._services.config
        try:
            self._server = await serve(
                self._handle,
                config.host,
                config.port,
                backlog=ACCEPT_AT_ONCE,
                ssl=tls_context(config.tls_cert, config.tls_key, kind=CacheError, where=_TLS_VARIABLES),
                process_request=self._process_request,
                select_subprotocol=_echoed,
                # Typed as a class, but only called.
                create_connection=self._make_socket,  # type: ignore[arg-type]
                compression="deflate" if config.compression else None,
                # Liveness is checked by the sync protocol's own pings and by `Upkeep`.
                ping_interval=None,
                max_size=config.max_payload_bytes,
                max_queue=WAITING_FRAMES,
                write_limit=TRANSPORT_BYTES,
                server_header=None,
                # It logs a stack trace for every refused or broken request; ours logs a line.
                logger=quiet_logger("cache.websockets"),
            )
        except OSError as error:
            raise cannot_listen(error, f"{config.host}:{config.port}", CacheError, _CANNOT_LISTEN) from None
        lengthen_queue(self._server, WAITING_SOCKETS)
        self._ended.enter_context(accept_failures(asyncio.get_running_loop(), FailureReports().note))
        self._warn_if_reachable()
        self._tasks = [asyncio.create_task(self._upkeep.run())]
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _make_socket(self, *args: Any, **kwargs: Any) -> SyncSocket:
        return SyncSocket(*args, budget=self._services.budget, connections=self._connections, **kwargs)

    def _warn_if_reachable(self) -> None:
        config = self._services.config
        if is_loopback(config.host):
            return
        if config.admin_password is None:
            fix = "set ZERO_ADMIN_PASSWORD; until then /metrics and /statusz are for this machine only"
            event(log, logging.WARNING, "other machines can connect and there is no admin password", fix=fix)
        if config.tls_cert is None:
            fix = "set CHANGESOURCE_CACHE_TLS_CERT and _KEY, or put a proxy that speaks TLS in front"
            event(log, logging.WARNING, "other machines can connect, without encryption", fix=fix)

    async def stop(self) -> None:
        """Close every connection, wait up to `STOP_SECONDS`, then abort the rest."""
        assert self._server is not None
        self._server.close(close_connections=False)
        for client in list(self.open_clients):
            client.close(CloseCode.GOING_AWAY, "the cache is stopping")
        if not await self._all_gone(self._server):
            for connection in list(self._server.all_connections):
                assert isinstance(connection, SyncSocket)
                connection.cut()
            if not await self._all_gone(self._server):
                event(log, logging.WARNING, "stopped with connections still open", count=len(self.open_clients))
        self._ended.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _all_gone(self, server: Server) -> bool:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.shield(asyncio.ensure_future(server.wait_closed()))
        except TimeoutError:
            return False
        return True

    def status(self) -> dict[str, Any]:
        """The document of `/statusz`; also updates the gauges of `/metrics`."""
        syncer, metrics = self._services.syncer.status(), self._services.metrics
        waiting = sum(client.outbox.waiting_bytes for client in self.open_clients)
        metrics.connections.set(self._sockets)
        metrics.groups.set(syncer.groups)
        metrics.queries.set(syncer.queries)
        metrics.rows.set(syncer.rows)
        metrics.waiting_bytes.set(waiting)
        metrics.intake_bytes.set(self._services.budget.held)
        sync = {"version": syncer.version, "groups": syncer.groups, "clients": syncer.clients}
        sync |= {"queries": syncer.queries, "rows": syncer.rows, "advances": syncer.advances, "pokes": syncer.pokes}
        document: dict[str, Any] = {
            "ready": self._ready.is_set(),
            "connections": self._sockets,
            "waitingBytes": waiting,
            "intakeBytes": self._services.budget.held,
        }
        return document | {"sync": sync | syncer.extra} | dict(self._more_status())

    async def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        if "websocket" not in request.headers.get("Upgrade", "").lower():
            page = self._page(connection, request)
            return response(page or Page.text(404, "no such page"), _REALM)
        assert isinstance(connection, SyncSocket)
        origin = request.headers.get("Origin")
        if not admits_origin(origin, self._services.config.allowed_origins):
            self._refused(connection, "origin", f"{origin} is not in CHANGESOURCE_CACHE_ALLOWED_ORIGINS")
            return response(Page.text(403, "pages of this origin may not connect"))
        if not await self._wait_until_ready():
            return self._unavailable("not-ready", "not ready yet")
        if self._sockets >= self._limit:
            return self._unavailable("too-many", "too many connections")
        try:
            connection.connect_request = parse_request(request.path, request.headers.get("Sec-WebSocket-Protocol"))
        except HandshakeError as error:
            # Complete the upgrade and refuse afterwards: a browser does not show why an upgrade was refused.
            connection.refused = str(error)
        return None

    def _page(self, connection: ServerConnection, request: Request) -> Page | None:
        local = is_local(_peer(connection), request.headers)
        return self._pages.answer(request.path, request.headers.get("Authorization"), is_local=local)

    async def _wait_until_ready(self) -> bool:
        """Wait for readiness: a refused client waits five seconds, and a restarting cache is usually ready earlier."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            return False
        return True

    def _unavailable(self, reason: str, text: str) -> Response:
        self._services.metrics.refused.labels(reason).inc()
        return response(Page.text(503, text))

    async def _handle(self, connection: ServerConnection) -> None:
        assert isinstance(connection, SyncSocket)
        self._sockets += 1
        try:
            await self._serve(connection)
        finally:
            self._sockets -= 1

    async def _serve(self, socket: SyncSocket) -> None:
        client = await self._admit(socket)
        if client is None:
            return
        self._services.metrics.opened.inc()
        self._enter(client)
        try:
            await client.run()
        finally:
            self._exit(client)

    async def _admit(self, socket: SyncSocket) -> SyncConnection | None:
        """Authenticate the client; returns None after sending the reason and closing the socket."""
        request = socket.connect_request
        if request is None:
            self._refused(socket, "handshake", socket.refused or "")
            socket.begin_close(CloseCode.PROTOCOL_ERROR, socket.refused or "")
            return None
        try:
            identity = await self._services.authenticator.first(request.user_id, request.auth_token)
            client = self._make_connection(socket, request, identity)
        except SyncError as error:
            self._refused(socket, str(error.kind), error.message)
            socket.send_error_and_close(error, auth.CLOSE_CODE if error.refuses_credentials else None)
            return None
        socket.forget_request()
        return client

    def _make_connection(self, socket: SyncSocket, request: ConnectRequest, identity: Identity) -> SyncConnection:
        services = self._services
        if not request.is_supported:
            raise _version_not_supported(request.version)
        assert socket.request is not None
        headers = dict(socket.request.headers.raw_items())
        query, mutate = address(services.config.query, headers), address(services.config.mutate, headers)
        credentials = Credentials(request.user_id, identity.token, query, mutate)
        return SyncConnection(socket, request, credentials, identity, services, self._replace_older)

    def _enter(self, client: SyncConnection) -> None:
        self.open_clients.add(client)
        self._of_client.setdefault(_key(client), []).append(client)
        self._groups[client.request.client_group_id] += 1

    def _replace_older(self, client: SyncConnection) -> None:
        """Close the client's older sockets, once the view syncer has admitted the new one.

        Also those that are still being admitted: they would otherwise replace this one when they are.
        """
        for other in self._of_client[_key(client)]:
            if other is client:
                break
            other.close()

    def _exit(self, client: SyncConnection) -> None:
        self.open_clients.discard(client)
        self._of_client[_key(client)].remove(client)
        if not self._of_client[_key(client)]:
            del self._of_client[_key(client)]
        group = client.request.client_group_id
        self._groups[group] -= 1
        if not self._groups[group]:
            del self._groups[group]
            self._services.inspectors.forget(group)

    def _refused(self, socket: SyncSocket, reason: str, why: str) -> None:
        self._services.metrics.refused.labels(reason).inc()
        event(log, logging.WARNING, "client refused", reason=reason, why=why, peer=_peer(socket))


def _peer(connection: ServerConnection) -> str | None:
    """The remote IP address."""
    return str(connection.remote_address[0]) if connection.remote_address else None


def _key(client: SyncConnection) -> tuple[str, str]:
    return client.request.client_group_id, client.request.client_id


def _echoed(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Echo the subprotocol: it carries the init message, and the client expects the same value back."""
    return offered[0] if offered else None


def _version_not_supported(version: int) -> SyncError:
    older = "server" if version > MAX_VERSION else "client"
    return SyncError(
        ErrorKind.VERSION_NOT_SUPPORTED,
        f"server is at sync protocol v{MAX_VERSION} and does not support v{version}. "
        f"The {older} must be updated to a newer release.",
    )
