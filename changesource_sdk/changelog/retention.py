"""What the log may forget, and which consumers. Pure.

The log may forget what every live consumer has acknowledged and what the newest snapshot already contains: a consumer
that starts now gets that snapshot and needs only what follows it.

A consumer that came back after its initial sync is live for a day after it was last heard of. One that never came
back, or that another replica of the same app and shard has replaced since, is live for a quarter of an hour only: every
initial sync makes a new consumer, and a cache that loses its replica at every start must not keep the log for a day
each time. A consumer that is no longer live may still resume, if the log happens to reach back that far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from changesource_sdk.changelog.coordination.consumers import Consumer, ConsumerKey, transaction_of

LIVE_WITHIN_MS = 24 * 3600 * 1000.0
"""A consumer not heard of for this long no longer keeps transactions alive."""

REPLACED_WITHIN_MS = 15 * 60 * 1000.0
"""The same for one that never resumed or was replaced; an initial sync under way is heard of all the time."""

MOST_CONSUMERS = 1000
"""How many are remembered. Names are the consumers' own choice, so their number must have an end."""


def prune_point(
    newest_snapshot: str, consumers: Iterable[Consumer], now_ms: float, live_within_ms: float = LIVE_WITHIN_MS
) -> str:
    """The watermark up to which nothing is needed any more."""
    known = list(consumers)
    newest = _newest_versions(known)
    needed = [newest_snapshot]
    for each in known:
        replaced = not each.has_resumed or newest[_shard(each)] > each.key.replica_version
        within = min(REPLACED_WITHIN_MS, live_within_ms) if replaced else live_within_ms
        if now_ms - each.seen_ms <= within:
            # A consumer that has an issued version needs what follows the transaction it was issued at.
            needed.append(transaction_of(each.acknowledged))
    return min(needed)


def forgettable(
    consumers: Sequence[Consumer], oldest: str, now_ms: float, live_within_ms: float = LIVE_WITHIN_MS
) -> list[ConsumerKey]:
    """Consumers that need not be remembered: long silent and unable to resume, and those beyond the limit.

    The newest version of each app and shard that resumed stays, as the proof of how far it has come. Beyond the limit
    those go first that never resumed, then the ones silent for longest: a flood of names displaces itself.
    """
    newest = _newest_versions(consumers)

    def is_over(each: Consumer) -> bool:
        is_newest = newest[_shard(each)] == each.key.replica_version
        return not is_newest and now_ms - each.seen_ms > live_within_ms and each.acknowledged < oldest

    over = [each.key for each in consumers if is_over(each)]
    kept = sorted((each for each in consumers if not is_over(each)), key=lambda each: (each.has_resumed, each.seen_ms))
    return over + [each.key for each in kept[: max(0, len(kept) - MOST_CONSUMERS)]]


def _newest_versions(consumers: Iterable[Consumer]) -> dict[tuple[str, int], str]:
    """The newest version that resumed, per app and shard; "" where none has."""
    newest: dict[tuple[str, int], str] = {}
    for each in consumers:
        version = each.key.replica_version if each.has_resumed else ""
        newest[_shard(each)] = max(version, newest.get(_shard(each), ""))
    return newest


def _shard(consumer: Consumer) -> tuple[str, int]:
    return consumer.key.app_id, consumer.key.shard
