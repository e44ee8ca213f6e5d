"""Where a snapshot ends when transactions are to stay whole. Pure.

Records of a transaction are spread over partitions, and its END lies in a topic of its own: at any moment some
transactions are there in part. The cut is a place in the transaction topic: what ended before it is in the snapshot,
the rest is left to the tail whole. `find_cut` is told what lies near the ends of the topics and says which transactions
are to be held out (`unfinished`), and from which offset on a partition has records of them (`starts`): there the tail
begins. Records of finished ones behind that offset are in the snapshot and named to the tail, which skips them.

A transaction that has ended, of whose records some are not below the fixed ends yet, moves the cut before its END;
so do, by that, all that ended after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ended:
    """An END in the transaction topic: its offset, and how many records its transaction has."""

    transaction: str
    offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A record near the end of a partition, and the transaction it belongs to, if any."""

    partition: TopicPartition
    offset: int
    transaction: str | None


@dataclass(frozen=True, slots=True)
class Cut:
    """`ends` of the data partitions, fixed; `starts` of the tail in them and, as `transactions_end`, in the topic of
    transactions.
    """

    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    transactions_end: int
    unfinished: frozenset[str] = frozenset()
    finished: frozenset[str] = frozenset()


def plain_cut(ends: Mapping[TopicPartition, int]) -> Cut:
    """Without transactions: everything below the ends, and the tail from there."""
    return Cut(ends, ends, 0)


def find_cut(
    ends: Mapping[TopicPartition, int],
    transactions_end: int,
    ended: Iterable[Ended],
    seen: Collection[Seen],
    begun_before: Collection[str] = (),
) -> Cut:
    """The latest cut at which no transaction is torn.

    `seen` are all records below the ends that may belong to a transaction which is unfinished at the cut; `ended` the
    ENDs of all transactions they belong to. Of transactions in `begun_before` some records lie before those seen, so
    that their number says nothing.
    """
    counts: dict[str, int] = {}
    for record in seen:
        if record.transaction is not None:
            counts[record.transaction] = counts.get(record.transaction, 0) + 1
    ended = list(ended)
    short = [
        end.offset
        for end in ended
        if end.transaction not in begun_before and counts.get(end.transaction, 0) < end.records
    ]
    place = min([transactions_end, *short])
    done = {end.transaction for end in ended if end.offset < place}
    unfinished = frozenset(counts.keys() - done)
    starts = dict(ends)
    for record in seen:
        if record.transaction in unfinished:
            starts[record.partition] = min(starts[record.partition], record.offset)
    finished = frozenset(
        record.transaction
        for record in seen
        if record.transaction is not None
        and record.transaction not in unfinished
        and record.offset >= starts[record.partition]
    )
    return Cut(ends, starts, place, unfinished, finished)
