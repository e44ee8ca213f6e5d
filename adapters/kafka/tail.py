"""Groups the records of each poll into transactions with their positions. Uses no clock and no broker.

With the upstream's transaction metadata, the groups are its transactions (`transactions.assembly.Assembler`). Without
it, a group is the records of one poll, or a single record.

What happens with a record that cannot be decoded depends on the setting `poison`: `stop` raises here, `set-aside`
writes it to a file and gives the pipeline a `BadRow`, so that no consumer keeps the row that the record replaced. A row
that no consumer can hold is the pipeline's affair (`on-bad-value`), and `Traced.explain` adds the record to the error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.broker.consumer import Batch
from adapters.kafka.key_order import OFFSET
from adapters.kafka.keys.index import KeyIndex
from adapters.kafka.keys.tracking import KeyTracker, RecentKeys, key_in_value, keys_moved
from adapters.kafka.position import KafkaPosition, Offsets
from adapters.kafka.records.catalog import Catalog
from adapters.kafka.records.dead_letters import DeadLetters, bad_row, poison_record
from adapters.kafka.records.debezium import boundary
from adapters.kafka.records.decoding import Decoded, Unreadable, Unwrapping
from adapters.kafka.records.reading import RecordReader, make_decoder
from adapters.kafka.settings import KafkaSettings, collection_topic
from adapters.kafka.transactions.assembly import Assembler, AssemblerPosition, Partition, Released
from adapters.kafka.transactions.spool import Entry, Where
from changesource_sdk import Change, ChangesourceError, InvalidChange, Transaction, clear_warning, warn
from changesource_sdk.toolkit import Holds, event, logger

_log = logger("kafka")

STALLED = "stalled-transaction"
WARN_AGAIN_S = 60.0
STILL_THERE_S = 60.0
"""Seconds without changes after which an empty transaction stores the position, so that it does not expire."""


class Traced:
    """Changes with the records they came from."""

    def __init__(self, before: Sequence[Change], entries: Iterable[Entry]) -> None:
        self._before = before
        self._entries = entries
        # The record of the change that was yielded last; None before the first.
        self.where: Where | None = None

    def __iter__(self) -> Iterator[Change]:
        yield from self._before
        for _, where, changes in self._entries:
            self.where = where
            yield from changes

    def explain(self, error: InvalidChange) -> ChangesourceError:
        """The error for the change that was yielded last, with its record."""
        if self.where is None:
            return error
        return poison_record(self.where, f"{error.message} ({error.where})")


def _no_index(topic: str, catalog: Catalog, offsets: Sequence[int]) -> KeyIndex:
    return KeyIndex()


MakeIndex: TypeAlias = Callable[[str, Catalog, Sequence[int]], KeyIndex]
"""Reads a topic up to these offsets of its partitions and returns the last records of its keys."""


class KafkaTail:
    """The stream after a position. Used by the reading thread only."""

    def __init__(
        self, settings: KafkaSettings, position: KafkaPosition, now: float = 0.0, make_index: MakeIndex = _no_index
    ) -> None:
        self._settings = settings
        self._make_index = make_index
        # Topics with keys in several partitions, as in the position; `_track` adds topics that get partitions.
        self._moved = dict(position.moved or {})
        # The last records of each key, by topic, for the topics in `_moved`; filled by `_track`. Empty with transaction
        # metadata: there the ENDs order the records of a key.
        self._trackers: dict[str, KeyTracker] = {}
        self._topic_ids = position.topic_ids
        self._reading = RecordReader(settings, position.catalog)
        # The tables that consumers have after everything yielded so far; `_transaction` updates it.
        self._consumer_catalog = position.catalog
        self._letters = DeadLetters(settings)
        # The next offset to read, by topic and partition. Without transaction metadata this is the position.
        self._next = {topic: list(offsets) for topic, offsets in position.offsets.items()}
        self._boundaries = Unwrapping(settings.transaction_topic, make_decoder(settings.decoder))
        self._collections = settings.collections(position.catalog.by_topic) if settings.transaction_topic else {}
        self._assembler = Assembler(_assembler_position(settings.transaction_topic, position), settings.open_limit)
        # When the last transaction was yielded, and whether records were read since.
        self._yielded_at = now
        self._has_unreported = False  # set by `take` and `_assembled`
        # When each stalled transaction was last warned about, by its id; written by `alarm`.
        self._warned_at: dict[str, float] = {}
        # The partitions of recently read keys, for topics with several partitions that are not tracked.
        self._recent = {
            topic: RecentKeys()
            for topic, offsets in self._next.items()
            if len(offsets) > 1 and settings.order_of(topic) != OFFSET
        }
        try:
            for topic in list(self._moved):
                self._track(topic)
        except BaseException:
            self.close()
            raise

    def take(self, batch: Batch, now: float) -> Iterator[Transaction]:
        """The transactions that these records complete; `now` is in seconds of any clock."""
        self._has_unreported |= bool(batch)
        if self._settings.transaction_topic:
            groups = self._assembled(batch, now)
        elif self._settings.transactions == "record":
            groups = self._single(batch)
        else:
            groups = self._whole(batch)
        for transaction in groups:
            self._yielded_at, self._has_unreported = now, False
            yield transaction
        if self._has_unreported and now - self._yielded_at > STILL_THERE_S:
            self._yielded_at, self._has_unreported = now, False
            yield self._transaction([], None)

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Read partitions that were added, from their first record on."""
        for topic, number in partitions:
            offsets = self._next[topic]
            offsets += [0] * (number + 1 - len(offsets))
            self._assembler.follow((topic, number))
            event(_log, logging.INFO, "a new partition is followed", topic=topic, partition=number)
            self._track(topic)

    def alarm(self, now: float) -> None:
        """Warn about stalled transactions, again every `WARN_AGAIN_S`; clear the warning when they are complete."""
        patience = self._settings.stall_after
        waiting = {stalled.id: stalled for stalled in self._assembler.stalled(now - patience)}
        for known in self._warned_at.keys() - waiting.keys():
            del self._warned_at[known]
            clear_warning(_log, STALLED, known, "the transaction is whole")
        for stalled in waiting.values():
            if now - self._warned_at.get(stalled.id, float("-inf")) > min(patience, WARN_AGAIN_S):
                self._warned_at[stalled.id] = now
                waited = round(now - stalled.since)
                what = "nothing after it is passed on" if stalled.has_ended else "every start reads from its records on"
                holds: Holds = "stream" if stalled.has_ended else ""
                warn(_log, STALLED, stalled.id, f"{stalled}; {what}", holds=holds, waited_s=waited)

    def close(self) -> None:
        """Remove the files of waiting changes and of tracked keys."""
        self._assembler.close()
        for tracker in self._trackers.values():
            tracker.close()

    # --- grouping ---

    def _whole(self, batch: Batch) -> Iterator[Transaction]:
        entries: list[Entry] = []
        time_ms: float | None = None
        for partition, records in batch.items():
            for record in records:
                changes = self._admitted(record, decoded := self._read(record))
                if changes:
                    entries.append((0, (*partition, record.offset), changes))
            self._read_up_to(partition, records[-1])
            time_ms = max(time_ms or 0, decoded.time_ms or records[-1].timestamp)
        if entries:
            yield self._transaction(entries, time_ms)

    def _single(self, batch: Batch) -> Iterator[Transaction]:
        for partition, records in batch.items():
            for record in records:
                changes = self._admitted(record, decoded := self._read(record))
                self._read_up_to(partition, record)
                if changes:
                    entry = (0, (*partition, record.offset), changes)
                    yield self._transaction([entry], decoded.time_ms or record.timestamp)

    def _assembled(self, batch: Batch, now: float) -> Iterator[Transaction]:
        """The upstream's transactions. Records of no transaction go before the next one, or together at the end."""
        alone: list[Entry] = []
        for partition, records in batch.items():
            for record in records:
                for released in self._assemble(partition, record, now):
                    self._has_unreported = True
                    if released.id is None:
                        alone += released.entries
                        continue
                    if alone or released.size:
                        yield self._transaction(chain(alone, released.entries), released.time_ms)
                        alone = []
        if alone:
            yield self._transaction(alone, None)

    def _assemble(self, partition: Partition, record: ConsumerRecord, now: float) -> Iterator[Released]:
        if record.topic == self._settings.transaction_topic:
            return self._boundary(record, now)
        decoded = self._read(record)
        return self._assembler.change(
            partition,
            record.offset,
            decoded.changes,
            decoded.transaction,
            decoded.order,
            decoded.time_ms or record.timestamp,
            now,
            len(record.value or b""),
        )

    def _boundary(self, record: ConsumerRecord, now: float) -> Iterator[Released]:
        try:
            marker = boundary(self._boundaries, record.value)
        except Unreadable as error:
            self._letters.put(record, error.reason, must_stop="without it no transaction after it is known to be whole")
            marker = None
        if marker is None or not marker.is_end:
            self._assembler.begin(record.offset)
            return
        wanted: dict[str, int] = {}
        for collection, count in marker.counts.items():
            topic = self._collections.get(collection_topic(collection))
            if topic is not None:
                wanted[topic] = wanted.get(topic, 0) + count
        yield from self._assembler.end(record.offset, marker.transaction, wanted, marker.time_ms, now)

    # --- records ---

    def _read(self, record: ConsumerRecord) -> Decoded:
        """Decode a record. One that is set aside is a `BadRow`, or has no changes if its row is not known; it still
        counts as a record of its transaction.
        """
        reading = self._reading.topics[record.topic]
        try:
            return reading.read(record.key, record.value)
        except Unreadable as error:
            reason, transaction, order, is_mismatch = error.reason, error.transaction, error.order, error.is_mismatch
        is_unknown = transaction is None and bool(self._settings.transaction_topic)
        must_stop = "the transaction it belongs to is unknown, and without it one would be torn" if is_unknown else ""
        key = None if is_mismatch else reading.row_key(record.key, record.value)
        self._letters.put(record, reason, key, is_mismatch=is_mismatch, must_stop=must_stop)
        bad = () if key is None else (bad_row(record, reason, reading.table.table.full_name, key),)
        return Decoded(bad, transaction, order)

    def _admitted(self, record: ConsumerRecord, decoded: Decoded) -> tuple[Change, ...]:
        """The changes of a record, without those for which another partition has a newer record."""
        topic = record.topic
        tracker = self._trackers.get(topic)
        if tracker is not None:
            return tracker.admit(self._reading.topics[topic], record, decoded)
        recent = self._recent.get(topic)
        if recent is not None:
            reading, key = self._reading.topics[topic], record.key
            if key is None or reading.has_own_key:
                key = key_in_value(reading, decoded)
            if key is not None and recent.has_moved(key, record.partition):
                raise keys_moved(record)
        return decoded.changes

    def _track(self, topic: str) -> None:
        """From now on, compare the records of each key over partitions."""
        self._moved[topic] = self._settings.ordering(topic)
        self._recent.pop(topic, None)
        if topic in self._trackers or self._settings.transaction_topic or self._settings.order_of(topic) == OFFSET:
            return
        event(_log, logging.INFO, "keys may lie in several partitions: reading the topic for them", topic=topic)
        index = self._make_index(topic, self._reading.catalog, self._next[topic])
        self._trackers[topic] = KeyTracker(self._settings, topic, index)

    def _read_up_to(self, partition: Partition, record: ConsumerRecord) -> None:
        self._next[partition[0]][partition[1]] = record.offset + 1

    # --- positions ---

    def _transaction(self, entries: Iterable[Entry], time_ms: float | None) -> Transaction:
        """A transaction with the position after it; new columns are added first."""
        catalog = self._reading.catalog
        grown: list[Change] = []
        if catalog is not self._consumer_catalog:
            for change in catalog.grown_since(self._consumer_catalog):
                event(_log, logging.INFO, "a column is new", table=change.table, column=change.column.name)
                grown.append(change)
            self._consumer_catalog = catalog
        changes = Traced(grown, entries)
        return Transaction(self._position().to_json(), changes, commit_time_ms=time_ms, explain=changes.explain)

    def _position(self) -> KafkaPosition:
        if not self._settings.transaction_topic:
            offsets = {topic: tuple(numbers) for topic, numbers in self._next.items()}
            return KafkaPosition(offsets, self._topic_ids, self._consumer_catalog, moved=dict(self._moved))
        reached = self._assembler.position()
        starts = _offsets(reached.starts) | {self._settings.transaction_topic: (reached.transactions,)}
        read, passed = _offsets(reached.read), _offsets(reached.passed)
        if _offsets(reached.starts) == read:
            return KafkaPosition(
                starts, self._topic_ids, self._consumer_catalog, ended_from=reached.ended_from, moved=dict(self._moved)
            )
        passed = {} if passed == read else passed
        return KafkaPosition(
            starts, self._topic_ids, self._consumer_catalog, read, passed, reached.ended_from, dict(self._moved)
        )


def data_starts(position: KafkaPosition, transaction_topic: str) -> dict[Partition, int]:
    """The offsets at which reading begins in the data topics."""
    return {p: at for p, at in _partitions(position.offsets).items() if p[0] != transaction_topic}


def _assembler_position(transaction_topic: str, position: KafkaPosition) -> AssemblerPosition:
    starts = data_starts(position, transaction_topic)
    read = _partitions(position.read) or starts
    passed = _partitions(position.passed) or read
    transactions = position.offsets.get(transaction_topic, (0,))[0]
    ended_from = transactions if position.ended_from is None else position.ended_from
    return AssemblerPosition(starts, read, passed, transactions, ended_from)


def _partitions(offsets: Offsets) -> dict[Partition, int]:
    return {(topic, number): at for topic, numbers in offsets.items() for number, at in enumerate(numbers)}


def _offsets(partitions: Mapping[Partition, int]) -> dict[str, tuple[int, ...]]:
    by_topic: dict[str, list[int]] = {}
    for (topic, _), offset in sorted(partitions.items()):
        by_topic.setdefault(topic, []).append(offset)
    return {topic: tuple(numbers) for topic, numbers in by_topic.items()}
