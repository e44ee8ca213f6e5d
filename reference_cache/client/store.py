"""What a client must remember, and the contract of the place that keeps it between two runs.

A `Record` is all of it: who the client is, which cookie its rows belong to, what it has asked for, and the mutations
that nobody has confirmed. Each change is one `Step`, and `save` makes the record and the step durable together, so a
cookie is never newer or older than the rows it stands for. `MemoryStore` keeps nothing; `sqlite_store` keeps a file.
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
class Identity:
    """Under which names the server knows a client; a store has one client, the only one of its group."""

    client_id: str
    group_id: str
    profile_id: str

    @classmethod
    def new(cls) -> Identity:
        """Names nobody has had before."""
        return cls(secrets.token_hex(ID_BYTES), secrets.token_hex(ID_BYTES), f"p{secrets.token_hex(ID_BYTES)}")


@dataclass(frozen=True, slots=True)
class QueuedMutation:
    """A mutation that was applied here and not yet confirmed; ids count from 1 without gaps."""

    id: int
    name: str
    args: Any
    timestamp: int


@dataclass(slots=True)
class Record:
    """Invariant: `rows`, `got` and `last_mutation_id` are what the server showed at `cookie`."""

    identity: Identity
    cookie: str | None = None
    last_mutation_id: int = 0
    newest_mutation_id: int = 0
    desired: set[str] = field(default_factory=set)
    got: set[str] = field(default_factory=set)
    queue: list[QueuedMutation] = field(default_factory=list)

    def forget_server(self) -> None:
        """The server's data are void; who the client is, and what it has queued, stays."""
        self.cookie = None
        self.desired.clear()
        self.got.clear()


@dataclass(frozen=True, slots=True)
class RowWrite:
    """The row of a table with this key is now this, or gone."""

    table: str
    key: Key
    row: Row | None


@dataclass(slots=True)
class Step:
    """What changed beside the few values of the record itself; `cleared` comes before `rows`."""

    cleared: bool = False
    rows: Sequence[RowWrite] = ()
    queued: QueuedMutation | None = None


class LocalStore(Protocol):
    """Where a record is kept."""

    def load(self, schema: Schema) -> tuple[Record, dict[str, list[Row]]]:
        """The record and the rows by table; a new identity where there was nothing. Raises `ClientError`."""
        ...

    def save(self, record: Record, step: Step) -> None:
        """Make the record and the step durable, both or neither."""
        ...

    def close(self) -> None: ...


class MemoryStore:
    """Keeps nothing: every run is a new client."""

    def load(self, schema: Schema) -> tuple[Record, dict[str, list[Row]]]:
        return Record(Identity.new()), {}

    def save(self, record: Record, step: Step) -> None:
        pass

    def close(self) -> None:
        pass
