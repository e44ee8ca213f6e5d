"""Which records of a topic consumers get while keys may be in several partitions.

`KeyTracker` has the last record of every key in each partition (`keys.index`), up to what was passed on. A record that
is the newest of its key by `order_by` is passed on; one that is older than another partition's is dropped. Invariant:
what was passed on leaves the same row for every key as a snapshot at the same offsets (`keys.moved.settle`). If a
record makes an older record of another partition the newest again, that record's row is not known here, and a resync is
required.

`RecentKeys` watches topics that are not tracked, in bounded memory. It notices most keys that change their partition
although none was added, which happens when producers partition keys differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.key_order import Candidate, key_bytes, keys_of, newest
from adapters.kafka.keys.candidates import candidates_in, changes_of
from adapters.kafka.keys.index import KeyIndex
from adapters.kafka.keys.unordered import key_unordered, warn_left_out
from adapters.kafka.records.decoding import Decoded
from adapters.kafka.records.reading import TopicReading
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.topics.folded_partition import torn_truncate
from changesource_sdk import AdapterError, Change, Delete, ResyncRequired, Truncate, Update
from changesource_sdk.toolkit import Throttle

REMEMBERED_KEYS = 100_000
WARN_AGAIN_S = 60.0


class KeyVerdict(Enum):
    """What happens with a record for one key."""

    ONLY = "its partition is the only one with the key"
    NEWEST = "it is the newest"
    OLDER = "another partition has a newer one, which was passed on"
    UNORDERED = "nothing says which is the newest"
    REVIVED = "another partition's older one is the newest now"


def verdict(known: Sequence[Candidate], new: Candidate) -> KeyVerdict:
    """Compare a key's next record with the last records of all partitions."""
    others = [each for each in known if each.partition != new.partition]
    if not others:
        return KeyVerdict.ONLY
    best = newest([*others, new])
    if best is None:
        return KeyVerdict.UNORDERED
    shown = newest(known)
    if best is not new:
        return KeyVerdict.OLDER if shown is best else KeyVerdict.REVIVED
    return KeyVerdict.NEWEST if new.is_whole or shown is not None else KeyVerdict.REVIVED


class KeyTracker:
    """Follows the records of one topic in the order they are read. Owns its index. One thread."""

    def __init__(self, settings: KafkaSettings, topic: str, index: KeyIndex) -> None:
        self._topic = topic
        self._order_by = settings.order_of(topic)
        self._refuses = settings.unordered_keys == "refuse"
        self._index = index
        self._warnings = Throttle(WARN_AGAIN_S)

    def admit(self, reading: TopicReading, record: ConsumerRecord, decoded: Decoded) -> tuple[Change, ...]:
        """The changes of a record that consumers get. Raises `key-unordered`, or `ResyncRequired`."""
        admitted: list[Change] = []
        for change in changes_of(reading, record, decoded):
            if isinstance(change, Truncate):
                raise torn_truncate(record)
            candidates = candidates_in(reading, self._order_by, record, decoded, change)
            verdicts = [self._judge(reading, key, candidate) for key, candidate in candidates]
            admitted += _shown(reading, change, verdicts, is_said=bool(decoded.changes))
        return tuple(admitted)

    def close(self) -> None:
        """Remove the index."""
        self._index.close()

    def _judge(self, reading: TopicReading, key: bytes, new: Candidate) -> KeyVerdict:
        known = self._index.of(key)
        new = new.after(next((each for each in known if each.partition == new.partition), None))
        outcome = verdict(known, new)
        if outcome is KeyVerdict.REVIVED:
            raise ResyncRequired(
                "key-order-reversed",
                f"key {key.decode()} was newest in partition {new.partition} of topic {self._topic}, and its next "
                "record there is older than one in another partition",
                where=f"topic {self._topic}",
                fix="nothing to do: the topics are read again from the start and consumers are reset; "
                "if it keeps happening, order by something that only grows (`order_by`)",
            )
        if outcome is KeyVerdict.UNORDERED:
            others = [other for other in known if other.partition != new.partition]
            self._report_unordered(
                key_unordered(self._topic, reading.table.table.full_name, self._order_by, key, [*others, new])
            )
        self._index.add({key: new})
        return outcome

    def _report_unordered(self, error: AdapterError) -> None:
        if self._refuses:
            raise error
        if self._warnings.admit(self._topic) is not None:
            warn_left_out(error)


def _shown(reading: TopicReading, change: Change, verdicts: Sequence[KeyVerdict], *, is_said: bool) -> list[Change]:
    """The part of a change that its keys' verdicts allow. `is_said`: it is in the record, not only implied by it."""
    own = verdicts[-1]
    if isinstance(change, Update) and change.old_key is not None:
        is_left = verdicts[0] is not KeyVerdict.OLDER
        if not _counts(own):
            gone: list[Change] = [Delete(change.table, change.old_key)] if is_left else []
            return gone + _left_out(reading, change, own)
        if not is_left:
            return [Update(change.table, change.row)]
    is_shown = own is KeyVerdict.NEWEST or (own is KeyVerdict.ONLY and is_said)
    return [change] if is_shown else _left_out(reading, change, own)


def _left_out(reading: TopicReading, change: Change, outcome: KeyVerdict) -> list[Change]:
    """A delete of the row, if the newest record of its key is no longer known."""
    if outcome is not KeyVerdict.UNORDERED:
        return []
    table, row = reading.table.table, keys_of(change)[-1]
    return [Delete(table.full_name, {name: row[name] for name in table.key})]


def _counts(outcome: KeyVerdict) -> bool:
    return outcome in (KeyVerdict.ONLY, KeyVerdict.NEWEST)


class RecentKeys:
    """The partitions of the keys of one topic that were read last: `REMEMBERED_KEYS` to twice as many keys."""

    def __init__(self) -> None:
        # Partition by hash of the key. When `_new` is full it replaces `_old`, which is cheaper than an LRU.
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}  # replaced by `has_moved`

    def has_moved(self, key: bytes, partition: int) -> bool:
        """Whether a key was recently read from another partition."""
        digest = hash(key)
        known = self._new.get(digest)
        if known is None:
            if len(self._new) >= REMEMBERED_KEYS:
                self._old, self._new = self._new, {}
            known = self._new[digest] = self._old.get(digest, partition)
        return known != partition


def key_in_value(reading: TopicReading, decoded: Decoded) -> bytes | None:
    """The key of a record's row, for topics whose record keys are not the keys of rows."""
    names = reading.table.table.key
    return next((key_bytes(row, names) for change in decoded.changes for row in keys_of(change)), None)


def keys_moved(record: ConsumerRecord) -> ResyncRequired:
    """The error for a key that changed its partition in a topic whose keys are not tracked."""
    return ResyncRequired(
        "keys-moved",
        f"the key of {record.topic}[{record.partition}] offset {record.offset} was in another partition before, though "
        "none was added: its producers place keys differently",
        where=f"topic {record.topic}",
        fix="nothing to do: the topics are read again, and the keys in several partitions are ordered by `order_by`",
    )
