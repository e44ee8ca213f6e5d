"""How a client reacts to an error message of the cache: one table, as in the official client 1.9.0. Pure.

One entry differs. `InvalidConnectionRequest` stops the official client. But the official cache also sends it to valid
requests: if a client reconnects while its group's queries are about to be started for the connection it lost, the cache
has no connection to start them for and fails the new one. So this client retries a few times before it stops.
"""

from __future__ import annotations

from enum import Enum, auto

from protocol.sync.downstream import ErrorBody
from protocol.sync.errors import ErrorKind, Origin, SyncError


class Reaction(Enum):
    """What the client does after an error."""

    KEEP_CONNECTION = auto()
    """Keep the connection."""
    RETRY = auto()
    """Connect again after a delay."""
    RETRY_A_FEW_TIMES = auto()
    """Connect again after a delay; stop after `MAX_INVALID_REQUESTS` equal errors."""
    DROP_SERVER_DATA = auto()
    """Drop the server's rows and the cookie, and connect again for a full sync."""
    RENEW_CREDENTIALS = auto()
    """Fetch another token, or wait until the program passes one."""
    STOP = auto()
    """Wait until the program calls `connect`."""


_REACTIONS = {
    ErrorKind.MUTATION_RATE_LIMITED: Reaction.KEEP_CONNECTION,
    ErrorKind.REHOME: Reaction.RETRY,
    ErrorKind.REBALANCE: Reaction.RETRY,
    ErrorKind.SERVER_OVERLOADED: Reaction.RETRY,
    ErrorKind.MUTATION_FAILED: Reaction.RETRY,
    ErrorKind.INVALID_CONNECTION_REQUEST: Reaction.RETRY_A_FEW_TIMES,
    ErrorKind.CLIENT_NOT_FOUND: Reaction.DROP_SERVER_DATA,
    ErrorKind.INVALID_BASE_COOKIE: Reaction.DROP_SERVER_DATA,
    ErrorKind.INVALID_LAST_MUTATION_ID: Reaction.DROP_SERVER_DATA,
}


def reaction_to(error: SyncError) -> Reaction:
    """An error that is not in the table stops the client."""
    if error.refuses_credentials:
        return Reaction.RENEW_CREDENTIALS
    return _REACTIONS.get(error.kind, Reaction.STOP)


def retry_seconds(error: SyncError, otherwise: float) -> float:
    """Seconds until the next connection: `otherwise`, within the limits that the error carries."""
    least, most = error.details.get("minBackoffMs"), error.details.get("maxBackoffMs")
    seconds = otherwise if least is None else max(otherwise, float(least) / 1000)
    return seconds if most is None else min(seconds, float(most) / 1000)


def received_error(fault: ErrorBody) -> SyncError:
    """An error message as an exception with all its details; an unknown kind becomes `Internal`."""
    details = dict(fault.model_extra or {})
    if fault.kind not in list(ErrorKind):
        return SyncError(ErrorKind.INTERNAL, f"{fault.kind}: {fault.message}", **details)
    origin: Origin = "server" if fault.origin == "server" else "zeroCache"
    return SyncError(ErrorKind(fault.kind), fault.message, origin=origin, **details)
