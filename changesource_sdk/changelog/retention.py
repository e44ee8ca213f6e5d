"""What a consumer may resume from, when it must start over, and what the log may forget. All pure.

The log may forget what every live subscriber has acknowledged and what the newest snapshot already contains: a consumer
that starts now gets that snapshot and needs only what follows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changesource_sdk.changelog.log import LogState, SnapshotRecord
from changesource_sdk.changelog.subscribers import Subscriber

LIVE_WITHIN_MS = 24 * 3600 * 1000.0
"""A subscriber not heard of for this long no longer keeps transactions alive."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The consumer can go on from where it is."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The consumer must start over, from a snapshot above `above`; `reason` is told to it."""

    reason: str
    above: str


def decide(
    state: LogState, snapshots: Iterable[SnapshotRecord], last_watermark: str, replica_version: str
) -> Resume | Reset:
    """Whether a consumer at `last_watermark`, whose replica stems from `replica_version`, can be served."""
    above = max(last_watermark, replica_version)
    if replica_version not in {snapshot.watermark for snapshot in snapshots}:
        return Reset(f"no snapshot {replica_version} is known here: the store was read anew or the log was lost", above)
    if last_watermark > state.head:
        return Reset(f"watermark {last_watermark} is newer than the log, which ends at {state.head}", above)
    if last_watermark < max(state.oldest, replica_version):
        return Reset(f"watermark {last_watermark} is older than the log, which starts at {state.oldest}", above)
    return Resume()


def prune_point(
    newest_snapshot: str, subscribers: Iterable[Subscriber], now_ms: float, live_within_ms: float = LIVE_WITHIN_MS
) -> str:
    """The watermark up to which nothing is needed any more."""
    live = (s.acknowledged for s in subscribers if now_ms - s.seen_ms <= live_within_ms)
    return min([newest_snapshot, *live])
