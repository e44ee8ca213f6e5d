"""The interface between the sync server and the view syncer.

    syncer = ViewSyncer(options, transformer)               # reference_cache.view_syncer.syncer
    await syncer.start()
    connection = await syncer.connect(client, init_connection, downstream)
    await connection.change_desired_queries(patch)          # one call at a time per connection
    await connection.close()                                # the socket is closed
    syncer.notify()                                         # the replica has a new version
    await syncer.stop()

All calls are made on one event loop. They raise `SyncError` if the client must be sent an error and disconnected; the
caller sends the error frame. Errors outside of a call go to `Downstream.fail`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from protocol.sync.ast import Query
from protocol.sync.errors import SyncError
from protocol.sync.messages import InitConnection, Inspection, QueryPatch
from reference_cache.credentials import Credentials
from reference_cache.view_syncer.cvr.limits import GroupLimits

InspectorAnswer: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The `value` of an answer to the inspector, as JSON: a version, figures, or one item per desired query."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """Text frames (JSON) that are sent one after the other, with nothing in between.

    The same object goes to every client that gets the same frames. `wire` belongs to the sync server, which caches the
    framed bytes there when it sends the object for the first time.
    """

    frames: tuple[bytes, ...]
    wire: bytes | None = None


class Downstream(Protocol):
    """One client's socket. The calls neither block nor raise; the sync server handles slow and dead sockets."""

    @property
    def is_open(self) -> bool:
        """Whether the client may still be connected."""

    def send(self, outgoing: Outgoing) -> None:
        """Send these frames, in order, after all frames of earlier calls."""

    def fail(self, error: SyncError) -> None:
        """Send the error and close; nothing is sent after it."""


@dataclass(frozen=True, slots=True)
class NamedQueryCall:
    """A query the application knows by name; `hash` is the client's id of it."""

    hash: str
    name: str
    args: Sequence[Any]


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """The application refused a named query; `body` is the item of the `transformError` message, as received."""

    body: Mapping[str, Any]


class Transformer(Protocol):
    """The application's query endpoint."""

    async def validate(self, credentials: Credentials) -> bool:
        """Ask the application whether it accepts the credentials; raises `SyncError` if it does not.

        Returns whether it confirmed the user id: it may accept credentials without naming a user.
        """

    async def transform(
        self, credentials: Credentials, queries: Sequence[NamedQueryCall]
    ) -> Mapping[str, Query | QueryFailure]:
        """The queries by hash, in server names; a hash that is missing gets no answer. Raises `SyncError`."""


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A client that connects.

    `auth_data` are the verified claims that read permissions may refer to; None unless a signed token confirmed the
    user id. `secret` is what the client presented to prove its identity (a token, cookies); None if nothing.
    """

    client_id: str
    group_id: str
    user_id: str | None = None
    base_cookie: str | None = None
    profile_id: str | None = None
    credentials: Credentials = field(default_factory=Credentials)
    auth_data: Mapping[str, Any] | None = None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SyncerOptions:
    """Files, tables, limits and durations. Times are seconds."""

    replica_file: Path
    cvr_file: Path
    app_id: str = "zero"
    shard_num: int = 0
    linger: float = 5.0
    """How long a group's queries keep running after its last client has disconnected."""
    time_slice: float = 0.01
    """How long evaluation may occupy the event loop at a time."""
    hydration_seconds: float = 60.0
    """How long one query's hydration may occupy the event loop in total."""
    hydration_rows: int = 1_000_000
    """How many rows one query may have when it is hydrated, each counted as often as it is referenced."""
    push_seconds: float = 1.0
    """How long expensive queries may delay one step to a new version."""
    forget_groups_after: float = 48 * 3600.0
    """How long a group without clients is kept."""
    takes_credentials: bool = False
    """Whether clients can present credentials: the cache verifies tokens, or an application does."""
    refuse_ad_hoc_queries: bool = False
    """Whether only named queries are run, and none whose AST a client sent."""
    limits: GroupLimits = field(default_factory=GroupLimits)
    """How much one group may have in the CVR file."""
    records_bytes: int = 8 << 30
    """How large the CVR file may become; beyond, unused groups are deleted, longest unused first."""
    clock: Callable[[], float] = time.monotonic
    """Measures time to live and lingering, in seconds."""


@dataclass(slots=True)
class SyncerStatus:
    """Figures for health checks and metrics, written by the view syncer; `status()` updates the first five."""

    version: str | None = None
    groups: int = 0
    clients: int = 0
    queries: int = 0
    rows: int = 0
    advances: int = 0
    pokes: int = 0
    extra: dict[str, float] = field(default_factory=dict)
    """Durations in milliseconds: of the last step to a new version, and of the longest so far."""


class SyncerConnection(Protocol):
    """A connected client. Calls are made one at a time; after `close` there are none.

    `deleted_clients` are the clients that its first message declared as deleted.
    """

    deleted_clients: Sequence[str]

    async def change_desired_queries(self, patch: Sequence[QueryPatch]) -> None:
        """Change the client's desired queries; pokes follow."""

    async def delete_clients(self, client_ids: Sequence[str]) -> None:
        """Delete clients of the group; acknowledged to all connected clients of the group."""

    async def update_auth(
        self, credentials: Credentials, auth_data: Mapping[str, Any] | None = None, secret: str | None = None
    ) -> None:
        """Have the application check new credentials, then transform the group's named queries with them."""

    async def transform_again(self) -> None:
        """Transform the group's named queries again, with this client's credentials."""

    async def inspect(self, question: Inspection) -> InspectorAnswer:
        """Answer an inspector's question (not `authenticate`, which the sync server answers)."""

    async def close(self) -> None:
        """The socket is closed: send nothing more to the client."""


class Syncer(Protocol):
    """What the sync server needs of the view syncer."""

    async def start(self) -> None:
        """Wait for the replica, open it, and start following it."""

    async def connect(self, client: ClientInfo, init: InitConnection, downstream: Downstream) -> SyncerConnection:
        """Admit a client; on return its first poke has been sent.

        Another connection of the same client is replaced: its `Downstream` gets no more frames; the caller closes it.
        """

    def notify(self) -> None:
        """The replica may have a new version."""

    def status(self) -> SyncerStatus: ...

    async def stop(self) -> None:
        """Disconnect all clients, write what is pending, and close the files."""
