"""One client's connection, from `connected` to the close. Zero's `Connection` of a sync worker.

Messages are handled one at a time in the order they arrive, except `ping`, which is answered immediately. A failure is
sent to this client only, as an error of the official kinds, and ends its connection. Messages before `initConnection`
are dropped, as the official server does.

Everything here runs on the cache's event loop, except the decoding of large messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from protocol import values
from protocol.sync import messages as up
from protocol.sync.app_server import CLEANUP
from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.handshake import ConnectRequest
from reference_cache.app_client.credentials import chosen_by_client
from reference_cache.app_client.pusher import Pusher
from reference_cache.background import in_background
from reference_cache.byte_budget import ByteBudget
from reference_cache.config import CacheConfig
from reference_cache.credentials import Credentials
from reference_cache.sync_server.access import auth
from reference_cache.sync_server.access.auth import Authenticator, Identity
from reference_cache.sync_server.access.inspectors import Inspectors
from reference_cache.sync_server.metrics import CacheMetrics
from reference_cache.sync_server.outbox import Backlog, Outbox
from reference_cache.sync_server.rates import ClientRate, MutationLimit, RateLimiter
from reference_cache.sync_server.socket import SyncSocket
from reference_cache.view_syncer.api import ClientInfo, Outgoing, Syncer, SyncerConnection, Transformer
from service_kit.logs import event, logger, unexpected

log = logger("cache.sync")

MESSAGE_OVERHEAD_BYTES = 256
"""Estimated memory of a queued message in addition to its text."""

PINGS = frozenset({'["ping",{}]', '["ping", {}]'})
"""A ping as clients write it, which is answered when it arrives; written differently, it is handled in order."""

TURN_SECONDS = 0.002
"""How long the messages of one client are received, or handled, before other tasks of the event loop run."""

LARGE_MESSAGE = 32 * 1024
"""Messages from this size on are decoded in the background thread: thousands of queries take most of a second."""

SETTLE_SECONDS = 0.25
"""An error is not sent earlier than this after `connected`. If the official client gets an error before it has handled
`connected`, it believes that it is connected, on a socket that it has closed."""

PONG = Outgoing((b'["pong",{}]',))


@dataclass(slots=True)
class ServerServices:
    """What all connections of a server share."""

    config: CacheConfig
    syncer: Syncer
    transformer: Transformer
    pusher: Pusher | None
    authenticator: Authenticator
    metrics: CacheMetrics
    inspectors: Inspectors
    budget: ByteBudget
    backlog: Backlog
    mutation_limit: MutationLimit | None = None
    rate: ClientRate = field(init=False)

    def __post_init__(self) -> None:
        self.rate = ClientRate(self.config.client_messages_per_second, self.config.client_bytes_per_second)


@dataclass(frozen=True, slots=True)
class Received:
    """A queued message, as text: decoded it can be many times as large."""

    text: str | bytes
    size: int


@dataclass(frozen=True, slots=True)
class Retransform:
    """The command to transform the group's named queries again."""


_Command: TypeAlias = Received | up.Upstream | Retransform


class SyncConnection:
    """A `Downstream` of the view syncer. Invariant: after `fail` or `close` nothing is sent, and `run` ends.

    `on_admitted` is called when the view syncer has accepted the client.
    """

    def __init__(
        self,
        socket: SyncSocket,
        request: ConnectRequest,
        credentials: Credentials,
        identity: Identity,
        services: ServerServices,
        on_admitted: Callable[[SyncConnection], None],
    ) -> None:
        # Without the init message, which may be large.
        self.request = replace(request, init=None)
        # Replaced by `_init` (URLs and headers of the client's choice) and `_update_auth`.
        self.credentials = credentials
        self.outbox = Outbox(socket, services.config.send_buffer_bytes, services.backlog, self.drop)
        # When the application last accepted the credentials, on the loop's clock; also written by `Upkeep`.
        self.validated_at = 0.0
        # The init message from the handshake; taken by `run`.
        self._init_message = request.init
        self._socket = socket
        # The verified token; replaced by `_update_auth`.
        self._identity = identity
        self._services = services
        self._on_admitted = on_admitted
        # The view syncer's side; None until it has accepted the client.
        self._synced: SyncerConnection | None = None
        # When `connected` was sent, on the loop's clock.
        self._connected_at = asyncio.get_running_loop().time()
        # Set by `_end_with`; nothing more is sent.
        self._has_failed = False
        self._limiter = RateLimiter(services.rate, self._connected_at)
        # When the receiving task next yields to others; written by `_limit_rate`.
        self._turn_ends = self._connected_at
        # Client id -> its first mutation that was refused for the mutation limit; until it comes again, later ones of
        # that client are dropped.
        self._limited: dict[str, float] = {}
        # Commands to handle, in order. None while empty: there are many idle clients, and even an empty deque is large.
        self._inbox: deque[_Command] | None = None
        # The task that handles the inbox; None while that is empty.
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._socket.state is State.OPEN and not self._has_failed

    @property
    def is_synced(self) -> bool:
        """Whether the first poke has been sent."""
        return self._synced is not None

    def send(self, outgoing: Outgoing) -> None:
        if not self._has_failed:
            self.outbox.send(outgoing)

    def fail(self, error: SyncError) -> None:
        self._end_with(error, None)

    def close(self, code: int | None = None, reason: str = "") -> None:
        """Close the socket, without an error."""
        self.outbox.discard()
        self._socket.begin_close(code, reason)

    def drop(self) -> None:
        """Abort the connection of a client that does not read."""
        self._services.metrics.dropped.inc()
        self._log(logging.WARNING, "client dropped for not reading", waiting=self.outbox.waiting_bytes)
        self.outbox.discard()
        self._socket.cut()

    def check_expiry(self) -> None:
        """End the connection if its token has expired; the client then fetches another one and reconnects."""
        if self._services.authenticator.has_expired(self._identity):
            self.fail(SyncError(ErrorKind.AUTH_INVALIDATED, "The auth token has expired."))

    def keep_alive(self, silent_for: float) -> None:
        """Send a pong if nothing was sent for `silent_for` seconds."""
        if asyncio.get_running_loop().time() - self.outbox.last_sent > silent_for:
            self.send(PONG)

    async def run(self) -> None:
        """Serve the client until its socket closes."""
        self._send(["connected", {"wsid": self.request.ws_id, "timestamp": int(time.time() * 1000)}])
        try:
            first, self._init_message = self._init_message, None
            if first is not None:
                self._take(up.parse(first, self._services.config.query_limits))
                del first
            async for text in self._socket:
                self._receive(text)
                await self._limit_rate(len(text))
        except SyncError as error:
            self.fail(error)
            await self._read_to_the_end()
        except ConnectionClosed:
            pass
        finally:
            await self._leave()

    async def _limit_rate(self, size: int) -> None:
        """After a message: yield to other tasks when the turn ends, and sleep if the client sends too fast.

        Yielding is explicit because messages that have arrived are received without suspending, and thousands fit into
        one packet.
        """
        now = self._socket.loop.time()
        wait = self._limiter.wait_after(size, now)
        if wait:
            self._services.metrics.throttled.inc()
        if wait or now >= self._turn_ends:
            await asyncio.sleep(wait)
            self._turn_ends = self._socket.loop.time() + TURN_SECONDS

    async def _read_to_the_end(self) -> None:
        """Receive and drop what the client still sends, so that its close frame is seen."""
        self._socket.stop_counting()
        with suppress(ConnectionClosed):
            async for _ in self._socket:
                pass

    def do(self, command: _Command) -> None:
        """Queue a command after the messages that arrived before."""
        if self._inbox is None:
            self._inbox = deque()
        self._inbox.append(command)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())

    def _receive(self, text: str | bytes) -> None:
        """Answer a ping, queue any other message; raises `SyncError` if the byte budget is exhausted."""
        size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self._socket.message_received(size)
        if text in PINGS:
            self._take(up.Ping())
            return
        received = Received(text, size + MESSAGE_OVERHEAD_BYTES)
        self._services.budget.take(self.request.client_group_id, received.size)
        self.do(received)

    def _take(self, message: up.Upstream) -> None:
        if isinstance(message, up.Ping):
            self._count(message)
            self.send(PONG)
        else:
            self.do(message)

    def _count(self, message: up.Upstream) -> None:
        self._services.metrics.messages.labels(message.tag).inc()

    async def _work(self) -> None:
        turn_ends = self._socket.loop.time() + TURN_SECONDS
        while self._inbox and self.is_open:
            if self._socket.loop.time() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = self._socket.loop.time() + TURN_SECONDS
                continue
            waiting = self._inbox.popleft()
            is_first = False
            try:
                command = await self._decoded(waiting)
                is_first = isinstance(command, up.InitConnection)
                await self._handle(command)
            except SyncError as error:
                refuses = is_first and error.kind is ErrorKind.UNAUTHORIZED
                self._end_with(error, auth.CLOSE_CODE if refuses else None)
            except Exception as error:
                self.fail(SyncError(ErrorKind.INTERNAL, self._unexpected(error)))
        self._worker = None
        if not self._inbox:
            self._inbox = None

    async def _decoded(self, command: _Command) -> up.Upstream | Retransform:
        if isinstance(command, Received):
            self._services.budget.release(self.request.client_group_id, command.size)
            text, limits = command.text, self._services.config.query_limits
            is_large = len(text) >= LARGE_MESSAGE
            command = await in_background(lambda: up.decode(text, limits)) if is_large else up.decode(text, limits)
        if not isinstance(command, Retransform):
            self._count(command)
        return command

    async def _handle(self, command: up.Upstream | Retransform) -> None:
        match command:
            case up.InitConnection():
                await self._init(command)
            case up.Ping():
                self.send(PONG)
            case up.Pull() | up.CloseConnection():
                pass
            case _ if self._synced is None:
                self._log(logging.WARNING, "message before initConnection", message=type(command).__name__)
            case up.Push():
                self._push(command)
            case up.AckMutationResponses():
                self._acknowledge_results(command)
            case up.ChangeDesiredQueries():
                await self._synced.change_desired_queries(command.desired_queries_patch)
            case up.DeleteClients():
                await self._delete_clients(self._synced, command.client_ids or [])
            case up.UpdateAuth():
                await self._update_auth(self._synced, command.auth)
            case up.Inspect():
                await self._inspect(self._synced, command.question)
            case Retransform():
                await self._synced.transform_again()

    async def _init(self, message: up.InitConnection) -> None:
        if self._synced is not None:
            raise SyncError(ErrorKind.INTERNAL, "Connection was already initialized")
        services, request = self._services, self.request
        config, credentials = services.config, self.credentials
        query = chosen_by_client(credentials.query, config.query, message.user_query_url, message.user_query_headers)
        mutate = chosen_by_client(credentials.mutate, config.mutate, message.user_push_url, message.user_push_headers)
        self.credentials = replace(credentials, query=query, mutate=mutate)
        client = ClientInfo(
            client_id=request.client_id,
            group_id=request.client_group_id,
            user_id=request.user_id,
            base_cookie=request.base_cookie,
            profile_id=request.profile_id,
            credentials=self.credentials,
            auth_data=self._identity.claims,
            secret=self.credentials.secret,
        )
        self._synced = await services.syncer.connect(client, message, self)
        # Only now: a socket that is not admitted must not replace the client's older one.
        self._on_admitted(self)
        if services.pusher is not None:
            services.pusher.register(request.client_group_id, request.client_id, self)
        self._forget_results(self._synced.deleted_clients)
        self.validated_at = asyncio.get_running_loop().time()

    def _push(self, push: up.Push) -> None:
        group = self.request.client_group_id
        if push.client_group_id != group:
            named = f'clientGroupID in mutation "{push.client_group_id}"'
            raise _invalid_push(f'{named} does not match clientGroupID of connection "{group}"')
        if not push.mutations:
            return
        if any(isinstance(mutation, up.CrudMutation) for mutation in push.mutations):
            raise _invalid_push("Support for legacy CRUD mutations is disabled")
        if any(mutation.name == CLEANUP for mutation in push.mutations):
            # The cache's own: a client could delete the results of any other client with it.
            raise _invalid_push(f"{CLEANUP} is not a mutation of clients")
        if self._services.pusher is None:
            raise _invalid_push("A ZERO_MUTATE_URL must be set in order to process custom mutations.")
        if not self._is_within_limit(push):
            return
        self._services.pusher.push(group, f"{self.request.client_id}:{self.request.ws_id}", self.credentials, push)

    def _is_within_limit(self, push: up.Push) -> bool:
        """Whether the push is within the mutation limit; if not, the client gets an error and sends it again later.

        Mutations after a refused one are dropped until that one comes again, because they must run in order.
        """
        limit, group = self._services.mutation_limit, self.request.client_group_id
        if limit is None:
            return True
        if any(each.id > self._limited.get(each.client_id, each.id) for each in push.mutations):
            return False
        if limit.admits(group, len(push.mutations), time.time()):
            for each in push.mutations:
                self._limited.pop(each.client_id, None)
            return True
        for each in push.mutations:
            self._limited.setdefault(each.client_id, each.id)
        error = SyncError(ErrorKind.MUTATION_RATE_LIMITED, "Rate limit exceeded")
        self._services.metrics.errors.labels(str(error.kind)).inc()
        self._send(["error", error.body])
        return False

    def _acknowledge_results(self, message: up.AckMutationResponses) -> None:
        if self._services.pusher is not None:
            group = self.request.client_group_id
            self._services.pusher.cleanups.results_acknowledged(group, self.credentials, message.client_id, message.id)

    async def _delete_clients(self, synced: SyncerConnection, client_ids: list[str]) -> None:
        await synced.delete_clients(client_ids)
        self._forget_results(client_ids)

    def _forget_results(self, client_ids: Sequence[str]) -> None:
        if self._services.pusher is not None:
            cleanups = self._services.pusher.cleanups
            cleanups.clients_deleted(self.request.client_group_id, self.credentials, client_ids)

    async def _update_auth(self, synced: SyncerConnection, token: str) -> None:
        identity = await self._services.authenticator.changed(self._identity, self.request.user_id, token)
        if identity != self._identity:
            credentials = self.credentials.with_token(identity.token)
            await synced.update_auth(credentials, identity.claims, credentials.secret)
            self._identity, self.credentials = identity, credentials
            self.validated_at = asyncio.get_running_loop().time()

    async def _inspect(self, synced: SyncerConnection, question: up.Inspection) -> None:
        group, inspectors = self.request.client_group_id, self._services.inspectors
        if isinstance(question, up.InspectAuthenticate):
            self._answer("authenticated", question.id, inspectors.authenticate(group, question.value))
        elif not inspectors.admits(group):
            self._answer("authenticated", question.id, False)
        else:
            try:
                self._answer(question.op, question.id, await synced.inspect(question))
            except SyncError:
                raise
            except ValueError as error:
                self._answer("error", question.id, str(error))
            except Exception as error:
                self._answer("error", question.id, self._unexpected(error))

    def _answer(self, op: str, question_id: str, value: object) -> None:
        self._send(["inspect", {"op": op, "id": question_id, "value": value}])

    def _send(self, message: object) -> None:
        self.send(Outgoing((values.dumps(message),)))

    def _end_with(self, error: SyncError, code: int | None) -> None:
        if not self.is_open:
            return
        self._has_failed = True
        self._services.metrics.errors.labels(str(error.kind)).inc()
        self._log(logging.WARNING, "error sent to client", kind=str(error.kind), why=error.message)
        self.outbox.discard()
        loop = self._socket.loop
        loop.call_at(
            max(loop.time(), self._connected_at + SETTLE_SECONDS), self._socket.send_error_and_close, error, code
        )

    async def _leave(self) -> None:
        waiting, self._inbox = self._inbox or (), None
        for each in waiting:
            if isinstance(each, Received):
                self._services.budget.release(self.request.client_group_id, each.size)
        self.outbox.discard()
        if self._worker is not None:
            # Not cancelled: a view syncer that is admitting this client must finish, so that it can be closed below.
            await asyncio.wait((self._worker,))
        if self._services.pusher is not None:
            self._services.pusher.unregister(self.request.client_group_id, self.request.client_id, self)
        if self._synced is not None:
            await self._synced.close()

    def _unexpected(self, error: Exception) -> str:
        return unexpected(
            log, "message failed", error, client=self.request.client_id, group=self.request.client_group_id
        )

    def _log(self, level: int, what: str, **fields: Any) -> None:
        event(log, level, what, client=self.request.client_id, group=self.request.client_group_id, **fields)


def _invalid_push(message: str) -> SyncError:
    return SyncError(ErrorKind.INVALID_PUSH, message)
