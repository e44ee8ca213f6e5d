"""How the replicator is: told to whoever asks, and with every line of its log in the same words."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

Phase = Literal["starting", "initial-sync", "following", "paused", "waiting", "stopped"]
"""`paused`: the reader of the replica is too far behind. `waiting`: before the next attempt, see `error`."""


@dataclass(slots=True)
class ReplicatorStatus:
    """Figures only grow, except `logged`, the changed rows that the replica's reader has yet to read."""

    phase: Phase = "starting"
    replica_version: str | None = None
    version: str | None = None
    rows_loaded: int = 0
    transactions: int = 0
    messages: int = 0
    logged: int = 0
    attempts: int = 0
    error: str | None = None
    reset_required: str | None = None
    commit_time_ms: float | None = None
    applied_time_ms: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is a replica to read."""
        return self.version is not None

    @property
    def lag_ms(self) -> float | None:
        """From the last transaction's commit upstream until it was durable here; None if the source does not say."""
        if self.commit_time_ms is None or self.applied_time_ms is None:
            return None
        return self.applied_time_ms - self.commit_time_ms

    def applied(self, commit_time_ms: float | None) -> None:
        """A transaction became durable now."""
        self.commit_time_ms = commit_time_ms
        self.applied_time_ms = time.time() * 1000

    def to_json(self) -> dict[str, Any]:
        """All that is counted, by name."""
        return asdict(self)
