"""What the log may forget. Pure.

The log may forget what every live subscriber has acknowledged and what the newest snapshot already contains: a consumer
that starts now gets that snapshot and needs only what follows it.
"""

from __future__ import annotations

from collections.abc import Iterable

from changesource_sdk.changelog.subscribers import Subscriber

LIVE_WITHIN_MS = 24 * 3600 * 1000.0
"""A subscriber not heard of for this long no longer keeps transactions alive."""


def prune_point(
    newest_snapshot: str, subscribers: Iterable[Subscriber], now_ms: float, live_within_ms: float = LIVE_WITHIN_MS
) -> str:
    """The watermark up to which nothing is needed any more."""
    live = (s.acknowledged for s in subscribers if now_ms - s.seen_ms <= live_within_ms)
    return min([newest_snapshot, *live])
