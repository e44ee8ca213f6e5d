"""The clients, desired queries and got queries of a client group. Pure; versions and times are arguments.

    edit = GroupEdit(config)
    edit.apply("client1", patch, now)         # and any other calls that belong to the same change
    edit.finish()                             # the next version, if anything changed

A client *desires* a query from its put to its del; then the desire is inactive, and the query stays until the time to
live of all its desires is over. A query is *got* once its rows are part of the view. What ends leaves a tombstone with
the version of its end, so that `desired_since` and `got_since` can bring a returning client up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import orjson

from protocol.sync import ast_json
from protocol.sync.ast import Query
from protocol.sync.messages import ClearQueries, DelQuery, PutQuery, QueryPatch
from protocol.watermark import EMPTY
from reference_cache.view_syncer.cvr.versions import next_config

DEFAULT_TTL = 300_000.0
MAX_TTL = 600_000.0

Op: TypeAlias = Literal["put", "del"]
QueryOp: TypeAlias = tuple[Op, str]
"""An operation and the query's hash."""


def clamped_ttl(ttl: float | None) -> float:
    """Milliseconds that a query outlives its last desire: by default five minutes, at most ten (also for < 0)."""
    if ttl is None:
        return DEFAULT_TTL
    return MAX_TTL if ttl < 0 else min(float(ttl), MAX_TTL)


def definition_size(hash: str, ast: Query | None, name: str | None, args: Sequence[Any]) -> int:
    """About how many bytes the record of a query takes."""
    return len(hash) + len(definition(ast, name, args))


def definition(ast: Query | None, name: str | None, args: Sequence[Any]) -> bytes:
    """A query's definition, as it is recorded."""
    return orjson.dumps([None if ast is None else ast_json.to_json(ast), name, list(args)])


@dataclass(slots=True)
class Desire:
    """A client desires a query. Times are milliseconds; `inactivated_at` is on the TTL clock, None while active."""

    ttl: float
    version: str
    inactivated_at: float | None = None

    @property
    def active(self) -> bool:
        return self.inactivated_at is None


@dataclass(slots=True)
class QueryConfig:
    """A query of the group, by the client's hash: ad hoc (`ast`) or named.

    `version` is when it was last got or removed, None before that; `deleted` makes it a tombstone.
    """

    hash: str
    ast: Query | None = None
    name: str | None = None
    args: Sequence[Any] = ()
    version: str | None = None
    got: bool = False
    deleted: bool = False
    desires: dict[str, Desire] = field(default_factory=dict)
    size: int = 0  # bytes of its definition

    def ended_desires(self) -> list[str]:
        """The clients whose inactive desires only matter to returning clients.

        None if all desires are inactive: then the query's expiry depends on them.
        """
        ended = [client_id for client_id, desire in self.desires.items() if not desire.active]
        return ended if self.deleted or len(ended) < len(self.desires) else []

    def expires_at(self) -> float | None:
        """When the last desire expires, on the TTL clock; None while one is active."""
        latest = float("-inf")
        for desire in self.desires.values():
            if desire.inactivated_at is None:
                return None
            latest = max(latest, desire.inactivated_at + desire.ttl)
        return latest


@dataclass(slots=True)
class GroupConfig:
    """A client group. Invariant: every desire's client is or was in `clients`, every version is at most `version`."""

    group_id: str
    version: str = EMPTY
    clients: set[str] = field(default_factory=set)
    # By hash, tombstones included; written by `GroupEdit` and `forget_ended`.
    queries: dict[str, QueryConfig] = field(default_factory=dict)
    definition_bytes: int = 0  # of the queries that have not ended
    desire_count: int = 0  # desires of all clients, those that have ended included

    def wanted(self) -> Iterator[QueryConfig]:
        """The queries that are to run: desired ones, and those whose time to live is not over."""
        return (query for query in self.queries.values() if not query.deleted)

    def count_ended(self) -> int:
        """How many queries and desires are tombstones."""
        return sum(query.deleted + len(query.ended_desires()) for query in self.queries.values())

    def forget_ended(self) -> str:
        """Drop the older half of the tombstones; returns the version before which there are none now."""
        ended = [query.version or EMPTY for query in self.queries.values() if query.deleted]
        ended += [query.desires[client].version for query in self.queries.values() for client in query.ended_desires()]
        before = sorted(ended)[len(ended) // 2]
        for query in list(self.queries.values()):
            if query.deleted and (query.version or EMPTY) < before:
                del self.queries[query.hash]
                self.desire_count -= len(query.desires)
                continue
            for client_id in query.ended_desires():
                if query.desires[client_id].version < before:
                    del query.desires[client_id]
                    self.desire_count -= 1
        return before

    def expired(self, now: float) -> list[str]:
        """The hashes of the queries whose time to live is over, on the TTL clock."""
        return [query.hash for query in self.wanted() if (at := query.expires_at()) is not None and at <= now]

    def next_expiry(self) -> float | None:
        """When the next query expires, on the TTL clock; None if all are desired."""
        times = [at for query in self.wanted() if (at := query.expires_at()) is not None]
        return min(times, default=None)

    def desired_since(self, cookie: str | None) -> dict[str, list[QueryOp]]:
        """The changes of desired queries after a cookie, by client; without a cookie, the desired queries."""
        ops: dict[str, list[QueryOp]] = {}
        for query in self.queries.values():
            for client_id, desire in query.desires.items():
                if desire.active if cookie is None else desire.version > cookie:
                    op: Op = "put" if desire.active else "del"
                    ops.setdefault(client_id, []).append((op, query.hash))
        return ops

    def got_since(self, cookie: str | None) -> list[QueryOp]:
        """The queries that were got or removed after a cookie; without a cookie, the got queries."""
        if cookie is None:
            return [("put", query.hash) for query in self.queries.values() if query.got]
        changed = (query for query in self.queries.values() if query.version is not None and query.version > cookie)
        return [("put" if query.got else "del", query.hash) for query in changed]


class GroupEdit:
    """One change of a group's configuration: everything done through it has the same version.

    `desired` and `got` are what a client at the version before must be sent; the `touched_…` sets name what is to be
    stored. `new_queries` are those of `touched_queries` whose definition is new. The methods write all of them.
    """

    def __init__(self, config: GroupConfig, version: str | None = None) -> None:
        self.config = config
        self.before = config.version
        self.version = next_config(config.version) if version is None else version
        self._desired: dict[str, dict[str, Op]] = {}  # by client and hash, in the order of the last change
        self.got: list[QueryOp] = []
        self.new_queries: set[str] = set()
        self.touched_queries: set[str] = set()
        # (hash, client) of desires that were added, changed or ended.
        self.touched_desires: set[tuple[str, str]] = set()
        # Clients that were added or removed.
        self.touched_clients: set[str] = set()

    @property
    def desired(self) -> dict[str, list[QueryOp]]:
        return {client_id: [(op, hash) for hash, op in ops.items()] for client_id, ops in self._desired.items()}

    @property
    def changed(self) -> bool:
        return bool(self.touched_queries or self.touched_desires or self.touched_clients)

    def finish(self) -> bool:
        """Move the group to the new version if anything changed; returns whether it did."""
        if self.changed:
            self.config.version = self.version
        return self.changed

    def add_client(self, client_id: str) -> None:
        """Add a client, if it is new."""
        if client_id not in self.config.clients:
            self.config.clients.add(client_id)
            self.touched_clients.add(client_id)

    def remove_clients(self, client_ids: Iterable[str], now: float) -> None:
        """Delete clients: their desires become inactive, and the queries stay for their time to live."""
        for client_id in client_ids:
            for query in self.config.queries.values():
                self._inactivate(query, client_id, now)
            if client_id in self.config.clients:
                self.config.clients.discard(client_id)
                self.touched_clients.add(client_id)

    def apply(self, client_id: str, patch: Sequence[QueryPatch], now: float) -> None:
        """Apply a patch of a client's desired queries."""
        for op in patch:
            match op:
                case PutQuery():
                    self._put(client_id, op)
                case DelQuery():
                    query = self.config.queries.get(op.hash)
                    if query is not None:
                        self._inactivate(query, client_id, now)
                case ClearQueries():
                    for query in self.config.queries.values():
                        self._inactivate(query, client_id, now, ttl=0.0)

    def _put(self, client_id: str, put: PutQuery) -> None:
        ttl = clamped_ttl(put.ttl)
        query = self.config.queries.get(put.hash)
        if query is None or query.deleted:
            query = self._add_query(put, query)
        desire = query.desires.get(client_id)
        if desire is not None and desire.active and desire.ttl >= ttl:
            return
        if desire is not None and desire.active:
            ttl = max(ttl, desire.ttl)
        self.config.desire_count += desire is None
        query.desires[client_id] = Desire(ttl, self.version)
        self._note_desire("put", client_id, query.hash)

    def _add_query(self, put: PutQuery, tombstone: QueryConfig | None) -> QueryConfig:
        """Add a query; the desires and version of its tombstone stay, for clients that missed its end."""
        query = QueryConfig(put.hash, put.ast, put.name, put.args or ())
        query.size = definition_size(put.hash, put.ast, put.name, query.args)
        self.config.definition_bytes += query.size
        if tombstone is not None:
            query.desires, query.version = tombstone.desires, tombstone.version
        self.config.queries[put.hash] = query
        self.new_queries.add(put.hash)
        self.touched_queries.add(put.hash)
        return query

    def _inactivate(self, query: QueryConfig, client_id: str, now: float, ttl: float | None = None) -> None:
        desire = query.desires.get(client_id)
        if desire is None:
            return
        if desire.active:
            ended = desire.ttl if ttl is None else ttl
            query.desires[client_id] = Desire(ended, self.version, now)
            self._note_desire("del", client_id, query.hash)
        elif ttl is not None and desire.ttl != ttl:
            desire.ttl = ttl
            self.touched_desires.add((client_id, query.hash))

    def _note_desire(self, op: Op, client_id: str, hash: str) -> None:
        ops = self._desired.setdefault(client_id, {})
        ops.pop(hash, None)
        ops[hash] = op
        self.touched_desires.add((client_id, hash))

    def get(self, hash: str) -> None:
        """Mark a query as got: its rows are part of the view from this version on."""
        query = self.config.queries[hash]
        if not query.got:
            query.got, query.version = True, self.version
            self.got.append(("put", hash))
            self.touched_queries.add(hash)

    def drop(self, hash: str) -> None:
        """Make a tombstone of a query: it is no longer part of the view."""
        query = self.config.queries[hash]
        self.config.definition_bytes -= 0 if query.deleted else query.size
        query.got, query.deleted, query.version = False, True, self.version
        query.ast, query.name, query.args = None, None, ()  # a tombstone needs no definition
        self.got.append(("del", hash))
        self.touched_queries.add(hash)
