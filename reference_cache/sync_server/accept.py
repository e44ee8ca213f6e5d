"""Limits on accepted connections, and what happens when the process runs out of file descriptors.

Without a free descriptor asyncio cannot accept: it makes as many attempts as the backlog is long, logs each of them,
and repeats that every second. Here the attempts are few and the log is one line per interval. The number of sockets is
limited well before, so that files and requests to the application have the descriptors they need.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from websockets.asyncio.server import Server

from service_kit.logs import Throttle, event, logger

try:
    import resource
except ImportError:  # not a POSIX system; there is no such limit
    resource = None  # type: ignore[assignment]

log = logger("cache.server")

ACCEPT_AT_ONCE = 64
"""Connections accepted in one turn of the event loop."""

REPORT_SECONDS = 10.0
KEPT_DESCRIPTORS = 256
"""Descriptors for files, the replicator and requests to the application; sockets get the rest."""

WAITING_HANDSHAKES = 1024
"""Sockets allowed beyond the connection limit: those in the handshake or being refused."""


class Connections:
    """Counts open sockets, in total and per address, from the moment they are accepted."""

    def __init__(self, limit: int, per_address: int, refused: Callable[[], None]) -> None:
        self._limit = limit + WAITING_HANDSHAKES
        self._per_address = per_address
        # Remote IP address -> open sockets; written by `enter` and `leave`.
        self._addresses: Counter[str] = Counter()
        # Their sum.
        self._count = 0
        self._refused = refused

    def enter(self, address: str) -> bool:
        """Count a socket; returns whether it may stay open. Call `leave` in either case."""
        self._count += 1
        self._addresses[address] += 1
        may_stay = self._count <= self._limit and self._addresses[address] <= self._per_address
        if not may_stay:
            self._refused()
        return may_stay

    def leave(self, address: str) -> None:
        """Stop counting a closed socket."""
        self._count -= 1
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]


def connections_allowed(wanted: int) -> int:
    """The connection limit: `wanted`, or fewer if the process may not open that many files.

    Raises the soft limit of open files up to the hard limit.
    """
    if resource is None:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + WAITING_HANDSHAKES + KEPT_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, raised), hard))
        soft = max(soft, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if soft < needed:
            allowed = max(1, soft - WAITING_HANDSHAKES - KEPT_DESCRIPTORS)
            event(log, logging.INFO, "fewer connections than set: too few open files", files=soft, allowed=allowed)
            return min(wanted, allowed)
    return wanted


def lengthen_queue(server: Server, length: int) -> None:
    """Set the kernel's accept queue. Not `serve(backlog=)`: asyncio would also accept that many in one turn."""
    for each in server.sockets:
        with socket.fromfd(each.fileno(), each.family, each.type) as listening:
            listening.listen(length)


class FailureReports:
    """Logs connections that cannot be accepted, with one line per interval. They stay in the queue, and asyncio tries
    again after a second."""

    def __init__(self) -> None:
        self._throttle = Throttle(REPORT_SECONDS)

    def note(self, error: OSError) -> None:
        """An attempt failed."""
        held_back = self._throttle.admit("accept")
        if held_back is not None:
            fix = "raise the limit of open files, or lower CHANGESOURCE_CACHE_MAX_CONNECTIONS"
            attempts = held_back + 1
            event(log, logging.ERROR, "connections cannot be accepted", why=str(error), attempts=attempts, fix=fix)
