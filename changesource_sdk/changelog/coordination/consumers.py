"""The record of consumers: which initial syncs were issued to which app, and what was acknowledged since.

A consumer is one replica of one app and shard. It is identified by its *replica version*, the commit watermark of the
initial sync that it was built from. The endpoint issues a new one for every initial sync, above everything that was
ever sent. zero-cache depends on that: given a version that its change DB already has, it keeps that database and never
notices what the new replica lacks. Acknowledgements are cumulative: only a higher watermark counts.

Endpoints write this record; pruning, `inspect` and the pipeline read it. It is kept apart from the transactions, so
it survives a log that is lost or set aside, and proves how far consumers had come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocol import watermark as watermarks
from protocol.watermark import EMPTY


@dataclass(frozen=True, slots=True, order=True)
class ConsumerKey:
    """An app, its shard, and the watermark of the initial sync that its replica was built from."""

    app_id: str
    shard: int
    replica_version: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """What a consumer has acknowledged, and when it last connected or acknowledged (`seen_ms`, epoch milliseconds)."""

    key: ConsumerKey
    acknowledged: str
    seen_ms: float

    @property
    def has_resumed(self) -> bool:
        """Whether it connected again after its initial sync: the only proof that it has stored all of it."""
        return self.acknowledged >= self.key.replica_version


def next_version(head: str, newest_issued: str, now_us: int) -> str:
    """Return a watermark between the log's head and the next transaction, above every one issued before.

    Every transaction has a higher major number than the one before it (`changelog.batch`), so all of `major.*` of the
    head is free. The minor number comes from the clock: it stays unique even where the record of issued versions is
    lost or restored from an older copy.
    """
    major, minor = watermarks.to_int(head)
    # Records of earlier releases may have a text that a consumer chose.
    issued_major, issued_minor = watermarks.to_int(newest_issued if watermarks.is_valid(newest_issued) else EMPTY)
    used = max(minor or 0, (issued_minor or 0) if issued_major == major else 0)
    return watermarks.from_int(major, max(used + 1, now_us))


def highest_held(consumers: Iterable[Consumer]) -> str:
    """Return the highest watermark that was sent to one of these consumers for certain; `EMPTY` if none."""
    return max((max(each.acknowledged, each.key.replica_version) for each in consumers), default=EMPTY)


def is_beyond(watermark: str, head: str) -> bool:
    """Whether `watermark` is of a transaction above the log's head: then the log has lost transactions."""
    return transaction_of(watermark) > transaction_of(head)


def transaction_of(watermark: str) -> str:
    """Return the watermark of a transaction for that of an issued version: without the minor number."""
    return watermark.partition(".")[0]
