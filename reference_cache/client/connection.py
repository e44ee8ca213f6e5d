"""Staying connected: one connection after another, at a pace that depends on how the last one ended.

A connection that worked and broke is replaced at once; one that never worked is tried again after a growing wait. What
the cache says by an error decides the rest (`reactions`): new credentials are asked for, void data are dropped, and an
error that only people can repair stops the loop until `connect` is called. Nothing queued is lost in any of these, and
whoever waits for what only a connection can bring is told that it has stopped (`Disconnected`).
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
from reference_cache.client.socket import Lost, Opening, Outbox
from service_kit.backoff import reconnect_backoff
from service_kit.logs import event, logger

log = logger("cache.client")

StateName: TypeAlias = Literal["connecting", "connected", "offline", "needs-auth", "error", "closed"]
FetchToken: TypeAlias = Callable[[], Awaitable[str | None]]
T = TypeVar("T")

STOPPED: tuple[StateName, ...] = ("error", "closed")
"""Where nothing more happens by itself."""

ASKED_AGAIN = 4
"""How often a request that the cache calls invalid is made once more before the client stops."""


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """Where the connection stands; `error` is what the cache said, for `needs-auth` and `error`."""

    name: StateName
    error: SyncError | None = None


class Credentials:
    """The token in use, and how to get another."""

    def __init__(self, auth: str | FetchToken | None) -> None:
        self.token = auth if isinstance(auth, str) else None
        self._fetch = None if auth is None or isinstance(auth, str) else auth

    async def prepare(self) -> None:
        """Get a token, if it has to be fetched and was not; raises `Lost`."""
        if self._fetch is not None and self.token is None:
            try:
                self.token = await self._fetch()
            except Exception as error:
                raise Lost(f"no credentials could be fetched: {error!r}") from error

    async def renew(self) -> bool:
        """Get another token in place of a refused one; whether it is worth trying again."""
        if self._fetch is None:
            return False
        refused, self.token = self.token, None
        with suppress(Lost):
            await self.prepare()
            return self.token != refused
        return True


class Connection:
    """The connections of one client, of which there is at most one at a time."""

    def __init__(self, address: str, session: ClientSession, credentials: Credentials) -> None:
        self.state = ConnectionState("connecting")
        self._address = address
        self._session = session
        self._credentials = credentials
        self._backoff = reconnect_backoff()
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._live: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._is_paused = False
        self._asked_again = 0
        self._parameters: dict[str, str] = {}

    def start(self, *, offline: bool = False) -> None:
        """Begin to connect, or to wait for `connect`."""
        if offline:
            self._pause(ConnectionState("offline"))
        self._loop = asyncio.create_task(self._run())

    def connect(self, token: str | None = None) -> None:
        """Connect now, whatever it was that one waited for; with new credentials, if given."""
        if token is not None and token != self._credentials.token:
            self._credentials.token = token
            self._session.update_auth(token)
        if self._is_paused:
            # At once, so that who waits from now on is not told of an error that was before.
            self._become(ConnectionState("connecting"))
        self._is_paused = False
        self._asked_again = 0
        self._hurry.set()

    def disconnect(self) -> None:
        """Go offline until `connect`."""
        self._pause(ConnectionState("offline"))
        if self._live is not None:
            self._live.cancel()

    async def close(self) -> None:
        """End for good."""
        for task in (self._loop, self._live):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._become(ConnectionState("closed"))

    async def wait_for(self, name: StateName) -> ConnectionState:
        """Until the state is this; raises `Disconnected` if it stops at another."""
        while self.state.name != name:
            if self.state.name in STOPPED:
                raise Disconnected(self.state.error)
            await self._changed.wait()
        return self.state

    async def bring(self, wanted: Coroutine[Any, Any, T]) -> T:
        """What a connection is to bring about; raises `Disconnected` if it stops before."""
        brought, stopped = asyncio.create_task(wanted), asyncio.create_task(self._stopped())
        try:
            await asyncio.wait({brought, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if brought.done():
                return brought.result()
            raise Disconnected(self.state.error)
        finally:
            brought.cancel()
            stopped.cancel()

    async def _stopped(self) -> None:
        while self.state.name not in STOPPED:
            await self._changed.wait()

    def _become(self, state: ConnectionState) -> None:
        if state == self.state:
            return
        self.state = state
        event(log, logging.DEBUG, "connection", state=state.name, error=state.error and str(state.error))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _pause(self, state: ConnectionState) -> None:
        self._is_paused = True
        self._hurry.clear()
        self._become(state)

    async def _run(self) -> None:
        while True:
            if self._is_paused:
                await self._hurry.wait()
            self._hurry.clear()
            self._become(ConnectionState("connecting"))
            seconds = await self._attempt()
            if seconds and not self._is_paused:
                self._become(ConnectionState("connecting"))
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._hurry.wait()

    async def _attempt(self) -> float:
        """One connection; how long to wait before the next."""
        self._live = asyncio.create_task(self._connect())
        await asyncio.wait({self._live})
        if self._live.cancelled():
            return 0
        error = self._live.exception()
        if self._session.progressed:
            self._backoff.reset()
        if error is None or isinstance(error, Lost):
            event(log, logging.DEBUG, "connection-lost", reason=str(error))
            if not self._session.progressed:
                return self._backoff.seconds()
            self._asked_again = 0
            return 0
        if isinstance(error, WrongBase):
            return self._backoff.seconds()
        return await self._react(_as_sync_error(error))

    async def _connect(self) -> None:
        await self._credentials.prepare()
        parameters, self._parameters = self._parameters, {}
        on_open = partial(self._become, ConnectionState("connected"))
        await socket.run(self._address, _OneConnection(self._session, parameters, on_open))

    async def _react(self, error: SyncError) -> float:
        reaction = reaction_to(error)
        if reaction is Reaction.ASK_AGAIN:
            self._asked_again += 1
            event(log, logging.WARNING, "request-called-invalid", time=self._asked_again, message=error.message)
            reaction = Reaction.RETRY if self._asked_again <= ASKED_AGAIN else Reaction.STOP
        if reaction is Reaction.FORGET:
            self._session.forget()
        elif reaction is Reaction.ASK_FOR_CREDENTIALS:
            if not await self._credentials.renew():
                self._pause(ConnectionState("needs-auth", error))
        elif reaction is Reaction.RETRY:
            self._parameters = {name: str(value) for name, value in error.details.get("reconnectParams", {}).items()}
        elif reaction is Reaction.STOP:
            event(log, logging.ERROR, "connection-stopped", kind=error.kind, message=error.message)
            self._pause(ConnectionState("error", error))
        return retry_seconds(error, self._backoff.seconds())


class _OneConnection:
    """The session as one connection sees it: begun with parameters the cache asked for, and its opening noticed."""

    def __init__(self, session: ClientSession, parameters: dict[str, str], on_open: Callable[[], None]) -> None:
        self._session = session
        self._parameters = parameters
        self._on_open = on_open
        self.take = session.take
        self.closed = session.closed
        self.check_patience = session.check_patience

    def opening(self) -> Opening:
        opening = self._session.opening()
        return replace(opening, parameters={**self._parameters, **opening.parameters})

    def opened(self, outbox: Outbox) -> None:
        self._session.opened(outbox)
        self._on_open()


def _as_sync_error(error: BaseException) -> SyncError:
    """A cache that breaks the protocol, and a mistake of ours, stop the client as an error the cache tells does."""
    if isinstance(error, SyncError):
        return error
    if isinstance(error, PokeError | CodecError):
        return SyncError(ErrorKind.INTERNAL, f"the cache broke the protocol: {error}")
    log.error("client-failed", exc_info=error)
    return SyncError(ErrorKind.INTERNAL, f"the client failed: {error!r}")
