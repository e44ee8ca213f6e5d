"""One client's connection, from `connected` to the close.

Messages are handled one at a time in the order they came, except `ping`, which is answered at once. Whatever goes wrong
is told to this client alone, in the official kind, and ends its connection; nobody else notices. Messages before
`initConnection` have nothing to act on and are dropped, as the official server drops them.
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
from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.handshake import ConnectRequest
from reference_cache.app_client.cleanups import CLEANUP
from reference_cache.app_client.credentials import Credentials, chosen_by_client
from reference_cache.app_client.pusher import Pusher
from reference_cache.background import in_background
from reference_cache.byte_budget import ByteBudget
from reference_cache.config import CacheConfig
from reference_cache.sync_server.access import auth
from reference_cache.sync_server.access.auth import Authenticator, Identity
from reference_cache.sync_server.access.inspectors import Inspectors
from reference_cache.sync_server.metrics import CacheMetrics
from reference_cache.sync_server.outbox import Backlog, Outbox
from reference_cache.sync_server.rates import ClientRate, MutationLimit, Pace
from reference_cache.sync_server.socket import SyncSocket
from reference_cache.view_syncer.api import ClientInfo, Connection, Outgoing, Syncer, Transformer
from service_kit.logs import event, logger, unexpected

log = logger("cache.sync")

MESSAGE_OVERHEAD_BYTES = 256
"""What a waiting message costs besides its text."""

PINGS = frozenset({'["ping",{}]', '["ping", {}]'})
"""A ping as clients write it. It is answered when it arrives; in another spelling it waits for its turn."""

TURN_SECONDS = 0.002
"""How long the messages of one client are received, or handled, before it is the others' turn."""

LARGE_MESSAGE = 32 * 1024
"""Messages from this size on are not decoded on the event loop: thousands of queries take most of a second."""

SETTLE_SECONDS = 0.25
"""What a client needs to take in `connected`. An error that overtakes that leaves the official client believing that it
is connected, on a socket it has closed; so an error found sooner waits."""

PONG = Outgoing((b'["pong",{}]',))


@dataclass(slots=True)
class ServerServices:
    """What every connection of a server shares."""

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
    """A message that waits, as text: decoded it can be many times as large."""

    text: str | bytes
    size: int


@dataclass(frozen=True, slots=True)
class Retransform:
    """Asks the application for the group's named queries again."""


_Command: TypeAlias = Received | up.Upstream | Retransform


class Client:
    """A `Downstream` of the view syncer. Invariant: after `fail` or `close` nothing is sent, and `run` ends."""

    def __init__(
        self,
        socket: SyncSocket,
        asked: ConnectRequest,
        credentials: Credentials,
        identity: Identity,
        services: ServerServices,
        on_admitted: Callable[[Client], None],
    ) -> None:
        self.asked = replace(asked, init=None)
        self.credentials = credentials
        self.outbox = Outbox(socket, services.config.send_buffer_bytes, services.backlog, self.drop)
        self.validated_at = 0.0
        self._first = asked.init
        self._socket = socket
        self._identity = identity
        self._services = services
        self._on_admitted = on_admitted
        self._synced: Connection | None = None
        self._greeted = asyncio.get_running_loop().time()
        self._has_failed = False
        self._pace = Pace(services.rate, self._greeted)
        self._turn_ends = self._greeted  # when others are to be let in between two messages
        self._limited: dict[str, float] = {}  # client -> its first mutation that was refused for its rate
        self._inbox: deque[_Command] | None = None  # what waits, in order; none for idle clients, which are many
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._socket.state is State.OPEN and not self._has_failed

    @property
    def is_synced(self) -> bool:
        """Whether its first poke has been sent."""
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
        """Cut the connection to a client that does not read."""
        self._services.metrics.dropped.inc()
        self._log(logging.WARNING, "client dropped for not reading", waiting=self.outbox.waiting_bytes)
        self.outbox.discard()
        self._socket.cut()

    def check_expiry(self) -> None:
        """End the connection if its token has expired; the client gets another and comes back."""
        if self._services.authenticator.has_expired(self._identity):
            self.fail(SyncError(ErrorKind.AUTH_INVALIDATED, "The auth token has expired."))

    def keep_alive(self, silent_for: float) -> None:
        """Say something to a client that has heard nothing for that long."""
        if asyncio.get_running_loop().time() - self.outbox.last_sent > silent_for:
            self.send(PONG)

    async def run(self) -> None:
        """Serve the client until its socket closes."""
        self._say(["connected", {"wsid": self.asked.ws_id, "timestamp": int(time.time() * 1000)}])
        try:
            first, self._first = self._first, None
            if first is not None:
                self._take(up.parse(first, self._services.config.query_limits))
                del first
            async for text in self._socket:
                self._receive(text)
                await self._keep_pace(len(text))
        except SyncError as error:
            self.fail(error)
            await self._read_to_the_end()
        except ConnectionClosed:
            pass
        finally:
            await self._leave()

    async def _keep_pace(self, size: int) -> None:
        """After a message: let others have their turn, and read nothing for a while if the client sends too fast.

        Messages that are there already are received without waiting for anything, and thousands fit into one packet.
        """
        now = self._socket.loop.time()
        wait = self._pace.wait_after(size, now)
        if wait:
            self._services.metrics.throttled.inc()
        if wait or now >= self._turn_ends:
            await asyncio.sleep(wait)
            self._turn_ends = self._socket.loop.time() + TURN_SECONDS

    async def _read_to_the_end(self) -> None:
        """Take off and drop what the client still sends, so that its part in closing is seen."""
        self._socket.stop_counting()
        with suppress(ConnectionClosed):
            async for _ in self._socket:
                pass

    def do(self, command: _Command) -> None:
        """Have something done after the messages that wait."""
        if self._inbox is None:
            self._inbox = deque()
        self._inbox.append(command)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())

    def _receive(self, text: str | bytes) -> None:
        """Answer a ping at once and let anything else wait for its turn; raises `SyncError` if too much waits."""
        size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self._socket.take_off(size)
        if text in PINGS:
            self._take(up.Ping())
            return
        received = Received(text, size + MESSAGE_OVERHEAD_BYTES)
        self._services.budget.take(self.asked.client_group_id, received.size)
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
            self._services.budget.release(self.asked.client_group_id, command.size)
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
        services, asked = self._services, self.asked
        config, given = services.config, self.credentials
        query = chosen_by_client(given.query, config.query, message.user_query_url, message.user_query_headers)
        mutate = chosen_by_client(given.mutate, config.mutate, message.user_push_url, message.user_push_headers)
        self.credentials = replace(given, query=query, mutate=mutate)
        who = ClientInfo(
            asked.client_id,
            asked.client_group_id,
            asked.user_id,
            asked.base_cookie,
            asked.profile_id,
            self.credentials,
            self._identity.claims,
            self.credentials.secret,
        )
        self._synced = await services.syncer.connect(who, message, self)
        # Only now: a socket that nobody has admitted must not take anything from the one that is there.
        self._on_admitted(self)
        if services.pusher is not None:
            services.pusher.register(asked.client_group_id, asked.client_id, self)
        self._forget_results(self._synced.deleted_clients)
        self.validated_at = asyncio.get_running_loop().time()

    def _push(self, push: up.Push) -> None:
        group = self.asked.client_group_id
        if push.client_group_id != group:
            named = f'clientGroupID in mutation "{push.client_group_id}"'
            raise _invalid_push(f'{named} does not match clientGroupID of connection "{group}"')
        if not push.mutations:
            return
        if any(isinstance(mutation, up.CrudMutation) for mutation in push.mutations):
            raise _invalid_push("Support for legacy CRUD mutations is disabled")
        if any(mutation.name == CLEANUP for mutation in push.mutations):
            # The cache sends it, for clients of its own choice; in a client's hands it deletes anybody's results.
            raise _invalid_push(f"{CLEANUP} is not a mutation of clients")
        if self._services.pusher is None:
            raise _invalid_push("A ZERO_MUTATE_URL must be set in order to process custom mutations.")
        if not self._is_in_time(push):
            return
        self._services.pusher.push(group, f"{self.asked.client_id}:{self.asked.ws_id}", self.credentials, push)

    def _is_in_time(self, push: up.Push) -> bool:
        """Whether the push is within the limit of mutations; if not the client is told, and sends it again later.

        What it sent after a refused mutation is dropped until that one comes again: mutations are run in order.
        """
        limit, group = self._services.mutation_limit, self.asked.client_group_id
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
        self._say(["error", error.body])
        return False

    def _acknowledge_results(self, message: up.AckMutationResponses) -> None:
        if self._services.pusher is not None:
            group = self.asked.client_group_id
            self._services.pusher.cleanups.results_acknowledged(group, self.credentials, message.client_id, message.id)

    async def _delete_clients(self, synced: Connection, client_ids: list[str]) -> None:
        await synced.delete_clients(client_ids)
        self._forget_results(client_ids)

    def _forget_results(self, client_ids: Sequence[str]) -> None:
        if self._services.pusher is not None:
            cleanups = self._services.pusher.cleanups
            cleanups.clients_deleted(self.asked.client_group_id, self.credentials, client_ids)

    async def _update_auth(self, synced: Connection, token: str) -> None:
        identity = await self._services.authenticator.changed(self._identity, self.asked.user_id, token)
        if identity != self._identity:
            credentials = self.credentials.with_token(identity.token)
            await synced.update_auth(credentials, identity.claims, credentials.secret)
            self._identity, self.credentials = identity, credentials
            self.validated_at = asyncio.get_running_loop().time()

    async def _inspect(self, synced: Connection, question: up.Inspection) -> None:
        group, inspectors = self.asked.client_group_id, self._services.inspectors
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
        self._say(["inspect", {"op": op, "id": question_id, "value": value}])

    def _say(self, message: object) -> None:
        self.send(Outgoing((values.dumps(message),)))

    def _end_with(self, error: SyncError, code: int | None) -> None:
        if not self.is_open:
            return
        self._has_failed = True
        self._services.metrics.errors.labels(str(error.kind)).inc()
        self._log(logging.WARNING, "error told to client", kind=str(error.kind), why=error.message)
        self.outbox.discard()
        loop = self._socket.loop
        loop.call_at(max(loop.time(), self._greeted + SETTLE_SECONDS), self._socket.tell_and_close, error, code)

    async def _leave(self) -> None:
        waiting, self._inbox = self._inbox or (), None
        for each in waiting:
            if isinstance(each, Received):
                self._services.budget.release(self.asked.client_group_id, each.size)
        self.outbox.discard()
        if self._worker is not None:
            # What is under way is not interrupted: a syncer that has begun to admit this client must be told to let go.
            await asyncio.wait((self._worker,))
        if self._services.pusher is not None:
            self._services.pusher.unregister(self.asked.client_group_id, self.asked.client_id, self)
        if self._synced is not None:
            await self._synced.close()

    def _unexpected(self, error: Exception) -> str:
        return unexpected(log, "message failed", error, client=self.asked.client_id, group=self.asked.client_group_id)

    def _log(self, level: int, what: str, **fields: Any) -> None:
        event(log, level, what, client=self.asked.client_id, group=self.asked.client_group_id, **fields)


def _invalid_push(message: str) -> SyncError:
    return SyncError(ErrorKind.INVALID_PUSH, message)
