"""Limits of one client group in the CVR file: clients, queries, their definitions, and tombstones. Pure.

A patch is checked before any of it is applied, so a refused one changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.sync.errors import ErrorKind, SyncError
from protocol.sync.messages import PutQuery, QueryPatch
from reference_cache.view_syncer.cvr.config import GroupConfig, definition_size

ENDED_RECORDS = 20_000
"""Tombstones of queries and desires that a group keeps for returning clients; beyond, the older half is deleted."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The most a group may have. `query_bytes` are those of its queries' names, arguments and ASTs."""

    queries: int = 5_000
    query_bytes: int = 16 * 1024 * 1024
    clients: int = 1_000
    ended: int = ENDED_RECORDS

    def check_client(self, config: GroupConfig, client_id: str) -> None:
        """Raise `SyncError` if a new client is one too many."""
        if client_id not in config.clients and len(config.clients) >= self.clients:
            raise _beyond(f"a client group may have {self.clients} clients", "GROUP_CLIENTS")

    def check_patch(self, config: GroupConfig, patch: Sequence[QueryPatch]) -> None:
        """Raise `SyncError` if the queries that a patch adds are too many, or too large."""
        known = config.queries
        new = {
            op.hash: op
            for op in patch
            if isinstance(op, PutQuery) and ((query := known.get(op.hash)) is None or query.deleted)
        }
        if not new:
            return
        if len(known) + len(new) > self.queries and sum(1 for _ in config.wanted()) + len(new) > self.queries:
            raise _beyond(f"a client group may have {self.queries} queries", "GROUP_QUERIES")
        size = sum(definition_size(op.hash, op.ast, op.name, op.args or ()) for op in new.values())
        if config.definition_bytes + size > self.query_bytes:
            raise _beyond(f"the queries of a client group may take {self.query_bytes} bytes", "GROUP_QUERY_BYTES")

    def must_forget(self, config: GroupConfig) -> bool:
        """Whether there are so many tombstones that the older half is to be deleted."""
        return len(config.queries) + config.desire_count > self.ended and config.count_ended() > self.ended


def _beyond(limit: str, setting: str) -> SyncError:
    return SyncError(ErrorKind.INTERNAL, f"Limit exceeded: {limit} (CHANGESOURCE_CACHE_{setting})")
