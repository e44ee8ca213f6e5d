"""The durable state of a client, and the contract of the store that keeps it between two runs.

A `Record` holds the client's ids, the cookie of its rows, its desired and got queries, and the unconfirmed mutations.
`save` makes the record and one `RecordChange` durable together, so cookie and rows always match. `MemoryLocalStore`
keeps nothing; `SqliteLocalStore` keeps a file.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from reference_cache.zql.ivm.operator import Key
from reference_cache.zql.schema import Row, Schema

ID_BYTES = 9


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The ids the server knows a client by. A store has one client, which is the only one of its group."""

    client_id: str
    group_id: str
    profile_id: str

    @classmethod
    def new(cls) -> ClientIdentity:
        """Random ids."""
        return cls(secrets.token_hex(ID_BYTES), secrets.token_hex(ID_BYTES), f"p{secrets.token_hex(ID_BYTES)}")


@dataclass(frozen=True, slots=True)
class QueuedMutation:
    """A mutation that ran locally and is not confirmed. Ids count from 1 without gaps; `timestamp` in milliseconds."""

    id: int
    name: str
    args: Any
    timestamp: int


@dataclass(slots=True)
class Record:
    """Invariant: the stored rows, `got` and `last_mutation_id` are those of the server at `cookie`.

    `LocalState` changes it, on the client's event loop, and saves it after every change.
    """

    identity: ClientIdentity
    # Of the last applied poke; None before the first and after the server's data were dropped.
    cookie: str | None = None
    # The newest mutation of this client that the server has confirmed.
    last_mutation_id: int = 0
    # The newest mutation of this client; the next one gets this id plus one.
    newest_mutation_id: int = 0
    # Query hashes that the server has confirmed as desired by this client.
    desired: set[str] = field(default_factory=set)
    # Query hashes whose whole result is in the rows.
    got: set[str] = field(default_factory=set)
    # Unconfirmed mutations, oldest first.
    queue: list[QueuedMutation] = field(default_factory=list)

    def forget_server(self) -> None:
        """Drop cookie and queries; ids and queued mutations stay."""
        self.cookie = None
        self.desired.clear()
        self.got.clear()


@dataclass(frozen=True, slots=True)
class RowWrite:
    """A row to store under its key; None deletes it."""

    table: str
    key: Key
    row: Row | None


@dataclass(slots=True)
class RecordChange:
    """What changed outside the record's own values; `cleared` (all rows deleted) applies before `rows`."""

    cleared: bool = False
    rows: Sequence[RowWrite] = ()
    queued: QueuedMutation | None = None


class LocalStore(Protocol):
    """Storage for one client's record and rows, used from the client's event loop only."""

    def load(self, schema: Schema) -> tuple[Record, dict[str, list[Row]]]:
        """The record, and the rows by table; a new record with new ids if the store is empty. Raises `ClientError`."""
        ...

    def save(self, record: Record, change: RecordChange) -> None:
        """Make the record and the change durable in one transaction."""
        ...

    def close(self) -> None: ...


class MemoryLocalStore:
    """Keeps nothing: every run is a new client."""

    def load(self, schema: Schema) -> tuple[Record, dict[str, list[Row]]]:
        return Record(ClientIdentity.new()), {}

    def save(self, record: Record, change: RecordChange) -> None:
        pass

    def close(self) -> None:
        pass
