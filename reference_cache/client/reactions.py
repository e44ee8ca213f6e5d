"""What a client does about an error the cache tells it: one table, as the official client 1.9.0 has it. Pure.

One entry differs. `InvalidConnectionRequest` stops the official client, and the official cache also says it to clients
whose request is in order: when a client comes back just as its group's queries are to be started on behalf of the
connection it lost, the cache has no connection to start them for and fails the new one. So a few more requests are made
before it is believed.
"""

from __future__ import annotations

from enum import Enum, auto

from protocol.sync.downstream import Fault
from protocol.sync.errors import ErrorKind, Origin, SyncError


class Reaction(Enum):
    """What comes after an error."""

    GO_ON = auto()
    """The connection stays."""
    RETRY = auto()
    """Connect again after a while."""
    ASK_AGAIN = auto()
    """Connect again after a while; stop if the answer stays the same."""
    FORGET = auto()
    """The server's data are void; begin from nothing."""
    ASK_FOR_CREDENTIALS = auto()
    """Wait for new credentials."""
    STOP = auto()
    """Wait until the program says that the cause is gone."""


_REACTIONS = {
    ErrorKind.MUTATION_RATE_LIMITED: Reaction.GO_ON,
    ErrorKind.REHOME: Reaction.RETRY,
    ErrorKind.REBALANCE: Reaction.RETRY,
    ErrorKind.SERVER_OVERLOADED: Reaction.RETRY,
    ErrorKind.MUTATION_FAILED: Reaction.RETRY,
    ErrorKind.INVALID_CONNECTION_REQUEST: Reaction.ASK_AGAIN,
    ErrorKind.CLIENT_NOT_FOUND: Reaction.FORGET,
    ErrorKind.INVALID_BASE_COOKIE: Reaction.FORGET,
    ErrorKind.INVALID_LAST_MUTATION_ID: Reaction.FORGET,
}


def reaction_to(error: SyncError) -> Reaction:
    """What to do about an error."""
    if error.refuses_credentials:
        return Reaction.ASK_FOR_CREDENTIALS
    return _REACTIONS.get(error.kind, Reaction.STOP)


def retry_seconds(error: SyncError, otherwise: float) -> float:
    """How long to wait before connecting again: what the cache asked for, if it did."""
    least, most = error.details.get("minBackoffMs"), error.details.get("maxBackoffMs")
    seconds = otherwise if least is None else max(otherwise, float(least) / 1000)
    return seconds if most is None else min(seconds, float(most) / 1000)


def told_error(fault: Fault) -> SyncError:
    """The error a cache told, with all its details; a kind nobody knows counts as internal."""
    details = dict(fault.model_extra or {})
    if fault.kind not in list(ErrorKind):
        return SyncError(ErrorKind.INTERNAL, f"{fault.kind}: {fault.message}", **details)
    origin: Origin = "server" if fault.origin == "server" else "zeroCache"
    return SyncError(ErrorKind(fault.kind), fault.message, origin=origin, **details)
