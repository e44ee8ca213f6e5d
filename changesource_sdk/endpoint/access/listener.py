"""Listening sockets that take no more connections than they should.

They count connections per address and close at once what exceeds a limit, before TLS and HTTP cost anything. Out of
file descriptors, asyncio alone would log a stack trace per waiting connection and try again without end. Here a spare
descriptor is given up to accept the connection and close it, so that the queue is emptied and its peers know.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from changesource_sdk.endpoint.access.address_limits import AddressLimits
from service_kit.listening import OUT_OF_RESOURCES

BACKLOG = 128
OUT_OF_DESCRIPTORS = "descriptors"
#: Refused connections dealt with before asyncio gets its turn again.
REFUSED_AT_ONCE = 64
#: Somewhat less than asyncio waits before it accepts again.
PAUSE_SECONDS = 0.9

OnRefused = Callable[[str, str], None]
"""Called with the reason (`connections`, `rate`, `descriptors`) and the address of a connection that was closed."""


class CountedSocket(socket.socket):
    """An accepted connection that calls `on_close` when it is closed, once."""

    # Releases the connection's count; set by `of`, taken by the first `close`, on the event loop's thread.
    _on_close: Callable[[], None] | None = None

    @classmethod
    def of(cls, accepted: socket.socket, on_close: Callable[[], None]) -> CountedSocket:
        """The same connection; `accepted` is not used any more."""
        made = cls(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        made._on_close = on_close
        return made

    def close(self) -> None:
        """Close, and count it once."""
        super().close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


class ListeningSocket(socket.socket):
    """Accepts within limits. Invariant: a spare descriptor is held except while it is being given up."""

    def __init__(self, family: int, limits: AddressLimits, on_refused: OnRefused) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._limits = limits
        self._on_refused = on_refused
        self._spare = os.open(os.devnull, os.O_RDONLY)  # -1 while none could be had
        self._paused_at = float("-inf")  # when asyncio was last made to wait

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection within the limits; `BlockingIOError` if there is none now."""
        for _ in range(REFUSED_AT_ONCE):
            try:
                accepted, address = super().accept()
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                self._refuse_next(error)
                continue
            host = str(address[0])
            excess = self._limits.enter(host)
            if excess is None:
                return CountedSocket.of(accepted, partial(self._limits.leave, host)), address
            accepted.close()
            self._on_refused(excess, host)
        raise BlockingIOError(errno.EAGAIN, "connections beyond the limits were closed")

    def _refuse_next(self, cause: OSError) -> None:
        """Close the next connection in the queue, with the descriptor that is kept for this."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        try:
            accepted, address = super().accept()
            accepted.close()
        except OSError as error:
            if error.errno in OUT_OF_RESOURCES:
                # Another thread took the spare one: the connection stays in the queue.
                self._pause(cause)
            raise
        self._on_refused(OUT_OF_DESCRIPTORS, str(address[0]))
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _pause(self, cause: OSError) -> NoReturn:
        """Have asyncio stop accepting for its retry delay: it does so for each such error, so it gets one only."""
        now = time.monotonic()
        if now - self._paused_at < PAUSE_SECONDS:
            raise BlockingIOError(errno.EAGAIN, "out of file descriptors")
        self._paused_at = now
        self._on_refused(OUT_OF_DESCRIPTORS, "")
        raise cause

    def close(self) -> None:
        """Stop listening and give up the spare descriptor."""
        super().close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1


def listening_sockets(host: str, port: int, limits: AddressLimits, on_refused: OnRefused) -> list[ListeningSocket]:
    """A bound socket for every address that `host` has, all on one port. Raises `OSError`."""
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[ListeningSocket] = []
    try:
        for family, address in dict.fromkeys((info[0], info[4]) for info in resolved):
            listening = ListeningSocket(family, limits, on_refused)
            made.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            first_port = made[0].getsockname()[1] if len(made) > 1 else port
            listening.bind((address[0], first_port, *address[2:]))
    except BaseException:
        for listening in made:
            listening.close()
        raise
    return made
