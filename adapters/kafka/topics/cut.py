"""Where a snapshot ends so that no transaction is divided. Pure.

The records of a transaction are in several partitions, and its END is in the transaction topic, so at any moment some
transactions are incomplete. The cut is an offset of the transaction topic: transactions that ended before it are in the
snapshot, all others are left to the tail. `find_cut` gets the records near the ends of the topics, and computes:

- `starts`: the first offset of each partition with a record of an excluded transaction. The tail begins there.
- `finished`: the transactions that have records after `starts` and are in the snapshot. The tail finds their ENDs from
  `ended_from` on, and skips their records.

Records of no transaction after `starts` are left to the tail: an excluded transaction before them may have written the
same key.

If a transaction has ended, but some of its records are not below the fixed ends, the cut is before its END, and so all
transactions that ended after it are excluded too.
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
class RecordGroup:
    """The records of one transaction in one partition, among those that were read."""

    partition: TopicPartition
    transaction: str
    first: int
    last: int = 0  # offset; `RecordGroups.add` updates it
    records: int = 0  # without those that were delivered twice


class RecordGroups:
    """The records near the ends of the partitions, by partition and transaction."""

    def __init__(self) -> None:
        self._groups: dict[tuple[TopicPartition, str], RecordGroup] = {}  # filled by `add`
        self._orders: dict[str, Orders] = {}  # the numbers of records that were added, by transaction

    def add(self, partition: TopicPartition, offset: int, transaction: str, order: int) -> None:
        """Add a record with its number in its transaction; those of a partition must come in offset order.

        A record that was delivered twice counts once, or the transaction would seem complete without another.
        """
        known = self._groups.get((partition, transaction))
        if known is None:
            known = self._groups[partition, transaction] = RecordGroup(partition, transaction, offset)
        known.last = offset
        known.records += self._orders.setdefault(transaction, Orders()).add(order)

    def __iter__(self) -> Iterator[RecordGroup]:
        return iter(self._groups.values())


@dataclass(frozen=True, slots=True)
class Cut:
    """`ends` of the data partitions, and where the tail starts: `starts` in them, `transactions_end` in the topic of
    transactions.
    """

    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    transactions_end: int
    ended_from: int
    finished: frozenset[str] = frozenset()


def plain_cut(ends: Mapping[TopicPartition, int]) -> Cut:
    """Without transactions: the snapshot is everything below the ends, and the tail starts there."""
    return Cut(ends, ends, 0, 0)


def find_cut(
    ends: Mapping[TopicPartition, int],
    transactions_end: int,
    ended: Iterable[Ended],
    groups: RecordGroups,
    complete: Collection[str] = (),
) -> Cut:
    """The latest cut that divides no transaction.

    `groups` has all records below the ends that may belong to a transaction which is unfinished at the cut; `ended` has
    the ENDs of their transactions. All records of the transactions in `complete` are known to be below the ends,
    although not all of them were read.
    """
    ended = list(ended)
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.transaction] += group.records
    short = [end.offset for end in ended if end.transaction not in complete and counts[end.transaction] < end.records]
    cut_offset = min([transactions_end, *short])
    unfinished = frozenset(counts.keys() - {end.transaction for end in ended if end.offset < cut_offset})
    starts = dict(ends)
    for group in groups:
        if group.transaction in unfinished:
            starts[group.partition] = min(starts[group.partition], group.first)
    behind = (group for group in groups if group.last >= starts[group.partition])
    finished = frozenset(group.transaction for group in behind) - unfinished
    ended_from = min([cut_offset, *(end.offset for end in ended if end.transaction in finished)])
    return Cut(ends, starts, cut_offset, ended_from, finished)
