"""Replicator status for `/statusz` and the log."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

Phase = Literal["starting", "initial-sync", "following", "paused", "waiting", "stopped"]
"""`paused`: the view syncer is too far behind. `waiting`: until the next attempt, see `error`."""


@dataclass(slots=True)
class ReplicatorStatus:
    """Written by `Replicator` on its event loop; counters only grow, except `logged`."""

    phase: Phase = "starting"
    # Of the replica; None while there is none.
    replica_version: str | None = None
    version: str | None = None
    # Rows of the last initial sync.
    rows_loaded: int = 0
    # Since the process started: transactions applied, messages received, connections attempted.
    transactions: int = 0
    messages: int = 0
    # Changed rows in the replica's change log that the view syncer has not read.
    logged: int = 0
    attempts: int = 0
    # The last failure; None after something worked.
    error: str | None = None
    # The source's reason, from its `reset-required` until the next initial sync.
    reset_required: str | None = None
    # Of the last transaction, in milliseconds since the epoch: its commit upstream, if the source sends it, ...
    commit_time_ms: float | None = None
    # ... and when it became durable here.
    applied_time_ms: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is a complete replica."""
        return self.version is not None

    @property
    def lag_ms(self) -> float | None:
        """Milliseconds from the last transaction's commit upstream until it was durable here; None if unknown."""
        if self.commit_time_ms is None or self.applied_time_ms is None:
            return None
        return self.applied_time_ms - self.commit_time_ms

    def applied(self, commit_time_ms: float | None) -> None:
        """Note that a transaction became durable now."""
        self.commit_time_ms = commit_time_ms
        self.applied_time_ms = time.time() * 1000

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
