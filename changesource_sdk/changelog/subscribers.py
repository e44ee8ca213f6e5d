"""What each consumer acknowledged; kept by endpoints, read by pruning and `inspect`.

A subscriber is one replica of one app and shard. Acknowledgements are cumulative: only a higher watermark counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, order=True)
class SubscriberKey:
    """Who: an app, its shard, and the snapshot its replica stems from."""

    app_id: str
    shard: int
    replica_version: str


@dataclass(frozen=True, slots=True)
class Subscriber:
    """How far a subscriber is, and when it was last heard of (epoch milliseconds)."""

    key: SubscriberKey
    acknowledged: str
    seen_ms: float


class Subscribers(Protocol):
    """The table of subscribers; its watermarks never go back. Threads may share it."""

    def acknowledge(self, key: SubscriberKey, watermark: str, now_ms: float) -> None:
        """The subscriber has everything up to and including `watermark`."""

    def all(self) -> list[Subscriber]:
        """Every subscriber known, in key order."""

    def forget(self, key: SubscriberKey) -> None:
        """The subscriber will not come back; nothing is kept for it."""

    def close(self) -> None:
        """Release the store."""
