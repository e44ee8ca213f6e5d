"""Where a snapshot ends when transactions are to stay whole. Pure.

Records of a transaction are spread over partitions, and its END lies in a topic of its own: at any moment some
transactions are there in part. The cut is a place in the transaction topic: what ended before it is in the snapshot,
the rest is left to the tail whole. `find_cut` is told what lies near the ends of the topics and says which transactions
are to be held out, and from which offset on a partition has records of them (`starts`): there the tail begins. Behind
it only records of `finished` transactions are in the snapshot; the tail finds their ENDs from `ended_from` on and skips
them. Records of no transaction behind it are left to the tail, since one that is held out may have written their key.

A transaction that has ended, of whose records some are not below the fixed ends yet, moves the cut before its END;
so do, by that, all that ended after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from adapters.kafka.transactions.spool import Orders

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ended:
    """An END in the transaction topic: its offset, and how many records its transaction has."""

    transaction: str
    offset: int
    records: int


@dataclass(slots=True)
class Share:
    """The records of one transaction in one partition, as far as they were looked at."""

    partition: TopicPartition
    transaction: str
    first: int
    last: int = 0
    records: int = 0


class Shares:
    """What lies near the ends of the partitions, by partition and transaction."""

    def __init__(self) -> None:
        self._found: dict[tuple[TopicPartition, str], Share] = {}
        self._orders: dict[str, Orders] = {}

    def add(self, partition: TopicPartition, offset: int, transaction: str, order: int) -> None:
        """A record and its place in its transaction; those of a partition come in offset order.

        One that was delivered twice counts once: it must not stand for another that is still to come.
        """
        known = self._found.get((partition, transaction))
        if known is None:
            known = self._found[partition, transaction] = Share(partition, transaction, offset)
        known.last = offset
        known.records += self._orders.setdefault(transaction, Orders()).add(order)

    def __iter__(self) -> Iterator[Share]:
        return iter(self._found.values())


@dataclass(frozen=True, slots=True)
class Cut:
    """`ends` of the data partitions, fixed; `starts` of the tail in them and, as `transactions_end`, in the topic of
    transactions.
    """

    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    transactions_end: int
    ended_from: int
    finished: frozenset[str] = frozenset()


def plain_cut(ends: Mapping[TopicPartition, int]) -> Cut:
    """Without transactions: everything below the ends, and the tail from there."""
    return Cut(ends, ends, 0, 0)


def find_cut(
    ends: Mapping[TopicPartition, int],
    transactions_end: int,
    ended: Iterable[Ended],
    shares: Shares,
    complete: Collection[str] = (),
) -> Cut:
    """The latest cut at which no transaction is torn.

    `shares` are of all records below the ends that may belong to a transaction which is unfinished at the cut; `ended`
    the ENDs of all transactions they belong to. Of those in `complete` it is known that all records are below the ends,
    though not all may have been looked at.
    """
    ended = list(ended)
    counts: Counter[str] = Counter()
    for share in shares:
        counts[share.transaction] += share.records
    short = [end.offset for end in ended if end.transaction not in complete and counts[end.transaction] < end.records]
    place = min([transactions_end, *short])
    unfinished = frozenset(counts.keys() - {end.transaction for end in ended if end.offset < place})
    starts = dict(ends)
    for share in shares:
        if share.transaction in unfinished:
            starts[share.partition] = min(starts[share.partition], share.first)
    behind = (share for share in shares if share.last >= starts[share.partition])
    finished = frozenset(share.transaction for share in behind) - unfinished
    ended_from = min([place, *(end.offset for end in ended if end.transaction in finished)])
    return Cut(ends, starts, place, ended_from, finished)
