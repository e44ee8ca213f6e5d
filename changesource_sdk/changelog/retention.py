"""Which transactions may be pruned, and which consumers deleted. Pure.

A transaction may be pruned when every live consumer has acknowledged it and the newest snapshot contains it: a consumer
that starts now gets that snapshot and needs only what follows it. The transactions after a seed are kept as well, while
a cache may still start from it (`coordination.seeds`).

A consumer that resumed after its initial sync is live for `live_within_ms` (`--subscriber-expiry`) after it last
connected or acknowledged. One that never resumed, or that another replica of the same app and shard has replaced since,
is live for a quarter of an hour at most: every initial sync makes a new consumer, and a cache that loses its replica at
every start must not keep the log for days each time. A consumer that is no longer live may still resume, if the log
reaches back that far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from changesource_sdk.changelog.coordination.consumers import Consumer, ConsumerKey, transaction_of
from changesource_sdk.changelog.coordination.seeds import SeedRecord, needed_by

REPLACED_WITHIN_MS = 15 * 60 * 1000.0
"""A consumer that never resumed or was replaced is live for this long. During an initial sync it is never silent."""

MOST_CONSUMERS = 1000
"""How many consumers are kept. Any client can make up an app and a shard, so their number must be bounded."""


def prune_point(
    newest_snapshot: str,
    consumers: Iterable[Consumer],
    now_ms: float,
    live_within_ms: float,
    seeds: Iterable[SeedRecord] = (),
) -> str:
    """Return the watermark up to and including which transactions may be pruned; `now_ms` is in epoch milliseconds."""
    known = list(consumers)
    newest = _newest_versions(known)
    needed = [newest_snapshot, *needed_by(seeds, now_ms, live_within_ms)]
    for each in known:
        replaced = not each.has_resumed or newest[_shard(each)] > each.key.replica_version
        within = min(REPLACED_WITHIN_MS, live_within_ms) if replaced else live_within_ms
        if now_ms - each.seen_ms <= within:
            # A consumer that has an issued version needs what follows the transaction it was issued at.
            needed.append(transaction_of(each.acknowledged))
    return min(needed)


def forgettable(consumers: Sequence[Consumer], oldest: str, now_ms: float, live_within_ms: float) -> list[ConsumerKey]:
    """Return the consumers to delete: those long silent and unable to resume, and those beyond `MOST_CONSUMERS`.

    The newest version of each app and shard that resumed stays, as the proof of how far it has come. Beyond the limit,
    those that never resumed are deleted first, then those silent for longest, so a flood of made-up names displaces
    itself and not the real consumers.
    """
    newest = _newest_versions(consumers)

    def is_over(each: Consumer) -> bool:
        is_newest = newest[_shard(each)] == each.key.replica_version
        return not is_newest and now_ms - each.seen_ms > live_within_ms and each.acknowledged < oldest

    over = [each.key for each in consumers if is_over(each)]
    kept = sorted((each for each in consumers if not is_over(each)), key=lambda each: (each.has_resumed, each.seen_ms))
    return over + [each.key for each in kept[: max(0, len(kept) - MOST_CONSUMERS)]]


def _newest_versions(consumers: Iterable[Consumer]) -> dict[tuple[str, int], str]:
    """Return the newest version that resumed, by app and shard; "" where none has."""
    newest: dict[tuple[str, int], str] = {}
    for each in consumers:
        version = each.key.replica_version if each.has_resumed else ""
        newest[_shard(each)] = max(version, newest.get(_shard(each), ""))
    return newest


def _shard(consumer: Consumer) -> tuple[str, int]:
    return consumer.key.app_id, consumer.key.shard
