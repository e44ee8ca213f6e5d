"""The border of the view syncer: what the sync server gives it, and what it gives the sync server.

    syncer = ViewSyncer(options, transformer)               # reference_cache.view_syncer.syncer
    await syncer.start()
    connection = await syncer.connect(client, init_connection, downstream)
    await connection.change_desired_queries(patch)          # one call at a time per connection
    await connection.close()                                # the socket is gone, for whatever reason
    syncer.notify()                                         # the replica has a new version
    await syncer.stop()

All of it happens on one event loop. Calls raise `SyncError` if the client must be told and dropped; the caller sends
the error frame. Faults found later, on nobody's call, go to `Downstream.fail`.
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
from reference_cache.view_syncer.cvr.limits import GroupLimits

Credentials: TypeAlias = Any
"""Whatever the transformer needs to speak for a client (token, cookies, headers, URL); the syncer only passes it on."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """Text frames (JSON) that go out one after the other, with nothing in between.

    The same object goes to every client that is to get the same frames; `wire` is the socket side's own, for what it
    makes of them once for all.
    """

    frames: tuple[bytes, ...]
    wire: bytes | None = None


class Downstream(Protocol):
    """One client's socket. Neither call blocks or raises; a slow or dead socket is the other side's affair."""

    @property
    def is_open(self) -> bool:
        """Whether anybody may still be there."""

    def send(self, outgoing: Outgoing) -> None:
        """Send these frames, in order, after everything given before."""

    def fail(self, error: SyncError) -> None:
        """Send the error and close; nothing is sent after it."""


@dataclass(frozen=True, slots=True)
class NamedQuery:
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
        """Ask the application whether it accepts the credentials; raises `SyncError` if not.

        Returns whether it confirmed the user id: it may accept credentials without naming a user.
        """

    async def transform(
        self, credentials: Credentials, queries: Sequence[NamedQuery]
    ) -> Mapping[str, Query | QueryFailure]:
        """The queries by hash, in server names, and no others; one left out is never answered. Raises `SyncError`."""


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who connects.

    `auth_data` are the verified claims that read permissions may refer to; None unless a signed token confirmed the
    user id. `secret` is what the client presented to prove who it is (a token, cookies); None if it presented nothing.
    """

    client_id: str
    group_id: str
    user_id: str | None = None
    base_cookie: str | None = None
    profile_id: str | None = None
    credentials: Credentials = None
    auth_data: Mapping[str, Any] | None = None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SyncerOptions:
    """Where the files are, whose tables to look for, and how long things last. Times are seconds."""

    replica_file: Path
    cvr_file: Path
    app_id: str = "zero"
    shard_num: int = 0
    linger: float = 5.0
    """How long a group's pipelines outlive its last client."""
    time_slice: float = 0.01
    """How long the event loop may be kept by evaluation."""
    hydration_seconds: float = 60.0
    """How much time one query's hydration may take of the event loop."""
    hydration_rows: int = 1_000_000
    """How many rows one query may have when it is hydrated, counted as often as they are reached."""
    push_seconds: float = 1.0
    """How long queries that are out of the ordinary may hold up one step to a new version."""
    forget_groups_after: float = 48 * 3600.0
    """How long a group nobody connects to is remembered."""
    takes_credentials: bool = False
    """Whether clients can present credentials: the cache verifies tokens, or an application does."""
    refuse_ad_hoc_queries: bool = False
    """Whether only named queries are run, and none whose AST a client sent."""
    limits: GroupLimits = field(default_factory=GroupLimits)
    """What one group may have recorded."""
    records_bytes: int = 8 << 30
    """How large the records of all groups may become; then groups that nobody uses are forgotten, longest first."""
    clock: Callable[[], float] = time.monotonic
    """What time to live and lingering are measured by."""


@dataclass(slots=True)
class SyncerStatus:
    """What the syncer is doing, for health checks and metrics."""

    version: str | None = None
    groups: int = 0
    clients: int = 0
    queries: int = 0
    rows: int = 0
    advances: int = 0
    pokes: int = 0
    extra: dict[str, float] = field(default_factory=dict)
    """Durations in milliseconds: of the last step to a new version, and of the longest so far."""


class Connection(Protocol):
    """A connected client. Calls are made one at a time; after `close` there are none.

    `deleted_clients` are those of the group that its first message declared gone.
    """

    deleted_clients: Sequence[str]

    async def change_desired_queries(self, patch: Sequence[QueryPatch]) -> None:
        """Take what the client wants from now on; pokes follow."""

    async def delete_clients(self, client_ids: Sequence[str]) -> None:
        """Forget clients of the group; acknowledged to all of the group."""

    async def update_auth(
        self, credentials: Credentials, auth_data: Mapping[str, Any] | None = None, secret: str | None = None
    ) -> None:
        """Have the application check new credentials, then transform the group's named queries with them."""

    async def transform_again(self) -> None:
        """Transform the group's named queries again, with this client's credentials."""

    async def inspect(self, question: Inspection) -> Any:
        """The `value` of the answer to an inspector's question (not `authenticate`, which is the server's)."""

    async def close(self) -> None:
        """The socket is gone."""


class Syncer(Protocol):
    """The view syncer as the sync server sees it."""

    async def start(self) -> None:
        """Open the files and begin to follow the replica; waits until there is one."""

    async def connect(self, client: ClientInfo, init: InitConnection, downstream: Downstream) -> Connection:
        """Admit a client; on return its first poke has been sent. Another connection of the same client is replaced:
        its `Downstream` gets no more frames, and closing it is the caller's affair."""

    def notify(self) -> None:
        """The replica may have a new version."""

    def status(self) -> SyncerStatus: ...

    async def stop(self) -> None:
        """Write what is to be written and let go of everything."""
