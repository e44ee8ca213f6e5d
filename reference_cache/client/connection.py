"""Keeps a client connected: one connection after another, with a delay that depends on how the last one ended.

A connection that worked and broke is replaced immediately; one that never worked is retried with a growing delay. An
error from the cache decides the rest (`reactions`): renew the token, drop the server's data, or stop until `connect` is
called. No case loses queued mutations. Calls that wait for the server raise `Disconnected` when the manager stops.

Everything here runs on the client's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from protocol.errors import CodecError
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.client import socket
from reference_cache.client.errors import Disconnected
from reference_cache.client.pokes import PokeError, WrongBase
from reference_cache.client.reactions import Reaction, reaction_to, retry_seconds
from reference_cache.client.session import ClientSession
from reference_cache.client.socket import Lost, Opening, SendQueue
from service_kit.backoff import reconnect_backoff
from service_kit.logs import event, logger

log = logger("cache.client")

StateName: TypeAlias = Literal["connecting", "connected", "offline", "needs-auth", "error", "closed"]
FetchToken: TypeAlias = Callable[[], Awaitable[str | None]]
T = TypeVar("T")

STOPPED: tuple[StateName, ...] = ("error", "closed")
"""The states that only `connect` (after "error") or nothing (after "closed") leaves."""

MAX_INVALID_REQUESTS = 4
"""How often a connection that the cache calls invalid is retried before the client stops; see `reactions` for why."""


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """State of the connection; `error` is the cache's error, in the states `needs-auth` and `error`."""

    name: StateName
    error: SyncError | None = None


class TokenProvider:
    """The current auth token, and the application's function that fetches a new one."""

    def __init__(self, auth: str | FetchToken | None) -> None:
        # Written by `prepare` and `renew`, and by `ConnectionManager.connect` with a token from the program.
        self.token = auth if isinstance(auth, str) else None
        self._fetch = None if auth is None or isinstance(auth, str) else auth

    async def prepare(self) -> None:
        """Fetch a token if there is a fetch function and no token yet; raises `Lost`."""
        if self._fetch is not None and self.token is None:
            try:
                self.token = await self._fetch()
            except Exception as error:
                raise Lost(f"no credentials could be fetched: {error!r}") from error

    async def renew(self) -> bool:
        """Replace a refused token; returns whether to connect again (also when fetching failed: it may work later)."""
        if self._fetch is None:
            return False
        refused, self.token = self.token, None
        with suppress(Lost):
            await self.prepare()
            return self.token != refused
        return True


class ConnectionManager:
    """Makes the connections of one client; at most one exists at a time."""

    def __init__(self, address: str, session: ClientSession, token_provider: TokenProvider) -> None:
        # Written by `_become` only.
        self.state = ConnectionState("connecting")
        self._address = address
        self._session = session
        self._token_provider = token_provider
        self._backoff = reconnect_backoff()
        # Set and replaced by a new one at every change of `state`: one event wakes each waiter once.
        self._changed = asyncio.Event()
        # Set by `connect`: ends a pause or the delay before the next attempt.
        self._connect_now = asyncio.Event()
        # The task of the current connection attempt and connection; the last one stays here after its end.
        self._live: asyncio.Task[None] | None = None
        # The task that runs `_run`; set by `start`.
        self._loop: asyncio.Task[None] | None = None
        # Whether `_run` waits for `connect`: set by `_pause`, cleared by `connect`.
        self._is_paused = False
        # Consecutive `InvalidConnectionRequest` errors; 0 after a connection that worked and after `connect`.
        self._invalid_requests = 0
        # `reconnectParams` of the last error, sent in the next handshake and then dropped.
        self._parameters: dict[str, str] = {}

    def start(self, *, offline: bool = False) -> None:
        """Start the connection loop; with `offline` it waits for `connect`."""
        if offline:
            self._pause(ConnectionState("offline"))
        self._loop = asyncio.create_task(self._run())

    def connect(self, token: str | None = None) -> None:
        """End a pause or delay and connect now; a new token is also sent on the current connection."""
        if token is not None and token != self._token_provider.token:
            self._token_provider.token = token
            self._session.update_auth(token)
        if self._is_paused:
            # Not in `_run`: a caller that waits from now on must not see the state of the error before this call.
            self._become(ConnectionState("connecting"))
        self._is_paused = False
        self._invalid_requests = 0
        self._connect_now.set()

    def disconnect(self) -> None:
        """Go offline until `connect`."""
        self._pause(ConnectionState("offline"))
        if self._live is not None:
            self._live.cancel()

    async def close(self) -> None:
        """Cancel the loop and the connection; the manager cannot be started again."""
        for task in (self._loop, self._live):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._become(ConnectionState("closed"))

    async def wait_for(self, name: StateName) -> ConnectionState:
        """Return when the state is `name`; raises `Disconnected` if the manager stops in another state."""
        while self.state.name != name:
            if self.state.name in STOPPED:
                raise Disconnected(self.state.error)
            await self._changed.wait()
        return self.state

    async def or_disconnected(self, result: Coroutine[Any, Any, T]) -> T:
        """Await something that needs a connection; raises `Disconnected` if the manager stops first."""
        done, stopped = asyncio.create_task(result), asyncio.create_task(self._stopped())
        try:
            await asyncio.wait({done, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                return done.result()
            raise Disconnected(self.state.error)
        finally:
            done.cancel()
            stopped.cancel()

    async def _stopped(self) -> None:
        while self.state.name not in STOPPED:
            await self._changed.wait()

    def _become(self, state: ConnectionState) -> None:
        if state == self.state:
            return
        self.state = state
        event(log, logging.DEBUG, "connection state", state=state.name, error=state.error and str(state.error))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _pause(self, state: ConnectionState) -> None:
        self._is_paused = True
        self._connect_now.clear()
        self._become(state)

    async def _run(self) -> None:
        while True:
            if self._is_paused:
                await self._connect_now.wait()
            self._connect_now.clear()
            self._become(ConnectionState("connecting"))
            seconds = await self._attempt()
            if seconds and not self._is_paused:
                self._become(ConnectionState("connecting"))
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._connect_now.wait()

    async def _attempt(self) -> float:
        """Run one connection to its end; returns the delay before the next one, in seconds."""
        # A task of its own, so that `disconnect` can cancel the connection without ending the loop.
        self._live = asyncio.create_task(self._connect())
        await asyncio.wait({self._live})
        if self._live.cancelled():
            return 0
        error = self._live.exception()
        if self._session.progressed:
            self._backoff.reset()
        if error is None or isinstance(error, Lost):
            event(log, logging.DEBUG, "connection lost", reason=str(error))
            if not self._session.progressed:
                return self._backoff.seconds()
            self._invalid_requests = 0
            return 0
        # A poke from another cookie: the next connection sends the client's cookie and may get it right.
        if isinstance(error, WrongBase):
            return self._backoff.seconds()
        return await self._react(_as_sync_error(error))

    async def _connect(self) -> None:
        await self._token_provider.prepare()
        parameters, self._parameters = self._parameters, {}
        on_open = partial(self._become, ConnectionState("connected"))
        await socket.run(self._address, _ConnectionHandler(self._session, parameters, on_open))

    async def _react(self, error: SyncError) -> float:
        reaction = reaction_to(error)
        if reaction is Reaction.RETRY_A_FEW_TIMES:
            self._invalid_requests += 1
            event(
                log,
                logging.WARNING,
                "the cache refused the connection as invalid",
                attempt=self._invalid_requests,
                message=error.message,
            )
            reaction = Reaction.RETRY if self._invalid_requests <= MAX_INVALID_REQUESTS else Reaction.STOP
        if reaction is Reaction.DROP_SERVER_DATA:
            self._session.forget()
        elif reaction is Reaction.RENEW_CREDENTIALS:
            if not await self._token_provider.renew():
                self._pause(ConnectionState("needs-auth", error))
        elif reaction is Reaction.RETRY:
            self._parameters = {name: str(value) for name, value in error.details.get("reconnectParams", {}).items()}
        elif reaction is Reaction.STOP:
            event(log, logging.ERROR, "connection stopped", kind=error.kind, message=error.message)
            self._pause(ConnectionState("error", error))
        return retry_seconds(error, self._backoff.seconds())


class _ConnectionHandler:
    """The session as one connection uses it, with additional handshake parameters and a callback on open."""

    def __init__(self, session: ClientSession, parameters: dict[str, str], on_open: Callable[[], None]) -> None:
        self._session = session
        self._parameters = parameters
        self._on_open = on_open
        self.take = session.take
        self.closed = session.closed
        self.check_confirmations = session.check_confirmations

    def opening(self) -> Opening:
        opening = self._session.opening()
        return replace(opening, parameters={**self._parameters, **opening.parameters})

    def opened(self, send_queue: SendQueue) -> None:
        self._session.opened(send_queue)
        self._on_open()


def _as_sync_error(error: BaseException) -> SyncError:
    """Turn any failure into a `SyncError`: a protocol violation and a bug of ours stop the client like `Internal`."""
    if isinstance(error, SyncError):
        return error
    if isinstance(error, PokeError | CodecError):
        return SyncError(ErrorKind.INTERNAL, f"the cache broke the protocol: {error}")
    log.error("client failed", exc_info=error)
    return SyncError(ErrorKind.INTERNAL, f"the client failed: {error!r}")
