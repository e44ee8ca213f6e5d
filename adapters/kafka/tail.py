"""Records to transactions: what a poll brought, read, judged and grouped, each with the position behind it.

With the source's transaction metadata, groups are the source's transactions (`transactions.assembly.Assembler`);
without it they are what one poll brought, or single records. No clock and no broker: both are the caller's. A record
that cannot be read goes the way of the dead letters, and where they are set aside so does one whose row no consumer
could hold; where they stop the stream, that row stops it a step later, when the pipeline looks at it and asks which
record it was.
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
from adapters.kafka.position import Offsets, Vector
from adapters.kafka.records.catalog import Catalog
from adapters.kafka.records.dead_letters import DeadLetters, poison_record
from adapters.kafka.records.debezium import boundary
from adapters.kafka.records.decoding import Decoded, Unreadable, Unwrapping
from adapters.kafka.records.reading import Reading, make_decoder
from adapters.kafka.records.row_check import RowCheck
from adapters.kafka.settings import KafkaSettings, collection_topic
from adapters.kafka.transactions.assembly import Assembler, Partition, Place, Released
from adapters.kafka.transactions.spool import Entry, Where
from changesource_sdk import Change, ChangesourceError, InvalidChange, Transaction, clear_warning, warn
from changesource_sdk.toolkit import Holds, event, logger

_log = logger("kafka")

STALLED = "stalled-transaction"
WARN_AGAIN_S = 60.0
STILL_THERE_S = 60.0
"""How long what is read may bring no change before a position is told all the same, so that it does not grow old."""


class Traced:
    """Changes with the records they came from. Invariant: `where` is the record of the change that was given last."""

    def __init__(self, before: Sequence[Change], entries: Iterable[Entry]) -> None:
        self._before = before
        self._entries = entries
        self.where: Where | None = None

    def __iter__(self) -> Iterator[Change]:
        yield from self._before
        for _, where, changes in self._entries:
            self.where = where
            yield from changes

    def explain(self, error: InvalidChange) -> ChangesourceError:
        """The error for a change that was refused, naming its record."""
        if self.where is None:
            return error
        return poison_record(self.where, f"{error.message} ({error.where})")


def _no_index(topic: str, catalog: Catalog, offsets: Sequence[int]) -> KeyIndex:
    return KeyIndex()


MakeIndex: TypeAlias = Callable[[str, Catalog, Sequence[int]], KeyIndex]
"""Reads a topic up to these offsets of its partitions, for the last records of its keys."""


class Tail:
    """The stream after a position. Invariant: `told` is what consumers have after everything given so far."""

    def __init__(
        self, settings: KafkaSettings, vector: Vector, now: float = 0.0, make_index: MakeIndex = _no_index
    ) -> None:
        self._settings = settings
        self._make_index = make_index
        # As in the position; grows when partitions are added.
        self._moved = dict(vector.moved or {})
        # With the source's transactions, their ENDs order the records of a key over partitions: nothing is tracked.
        self._trackers: dict[str, KeyTracker] = {}
        self._topic_ids = vector.topic_ids
        self._reading = Reading(settings, vector.catalog)
        self._told = vector.catalog
        self._letters = DeadLetters(settings)
        self._row_check = RowCheck() if settings.poison == "set-aside" else None
        self._next = {topic: list(offsets) for topic, offsets in vector.offsets.items()}
        self._boundaries = Unwrapping(settings.transaction_topic, make_decoder(settings.decoder))
        self._collections = settings.collections(vector.catalog.by_topic) if settings.transaction_topic else {}
        self._assembler = Assembler(_place(settings.transaction_topic, vector), settings.open_limit)
        self._given_at = now
        self._is_moved = False
        self._alarmed: dict[str, float] = {}
        # Of the topics with several partitions that are not tracked.
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
        """The transactions that these records complete, `now` in seconds of any clock."""
        self._is_moved |= bool(batch)
        if self._settings.transaction_topic:
            groups = self._assembled(batch, now)
        elif self._settings.transactions == "record":
            groups = self._single(batch)
        else:
            groups = self._whole(batch)
        for transaction in groups:
            self._given_at, self._is_moved = now, False
            yield transaction
        if self._is_moved and now - self._given_at > STILL_THERE_S:
            self._given_at, self._is_moved = now, False
            yield self._transaction([], None)

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Partitions that are new, from their first record on."""
        for topic, number in partitions:
            offsets = self._next[topic]
            offsets += [0] * (number + 1 - len(offsets))
            self._assembler.follow((topic, number))
            event(_log, logging.INFO, "a new partition is followed", topic=topic, partition=number)
            self._track(topic)

    def alarm(self, now: float) -> None:
        """Warn about transactions that have waited too long, again now and then; say when that is over."""
        patience = self._settings.stall_after
        waiting = {stalled.id: stalled for stalled in self._assembler.stalled(now - patience)}
        for known in self._alarmed.keys() - waiting.keys():
            del self._alarmed[known]
            clear_warning(_log, STALLED, known, "the transaction is whole")
        for stalled in waiting.values():
            if now - self._alarmed.get(stalled.id, float("-inf")) > min(patience, WARN_AGAIN_S):
                self._alarmed[stalled.id] = now
                waited = round(now - stalled.since)
                what = "nothing after it is passed on" if stalled.has_ended else "every start reads from its records on"
                holds: Holds = "stream" if stalled.has_ended else ""
                warn(_log, STALLED, stalled.id, f"{stalled}; {what}", holds=holds, waited_s=waited)

    def close(self) -> None:
        """Remove the files of what waits and of tracked keys."""
        self._assembler.close()
        for tracker in self._trackers.values():
            tracker.close()

    # --- grouping ---

    def _whole(self, batch: Batch) -> Iterator[Transaction]:
        entries: list[Entry] = []
        time_ms: float | None = None
        for partition, records in batch.items():
            for record in records:
                changes = self._admitted(record, found := self._read(record))
                if changes:
                    entries.append((0, (*partition, record.offset), changes))
            self._read_up_to(partition, records[-1])
            time_ms = max(time_ms or 0, found.time_ms or records[-1].timestamp)
        if entries:
            yield self._transaction(entries, time_ms)

    def _single(self, batch: Batch) -> Iterator[Transaction]:
        for partition, records in batch.items():
            for record in records:
                changes = self._admitted(record, found := self._read(record))
                self._read_up_to(partition, record)
                if changes:
                    entry = (0, (*partition, record.offset), changes)
                    yield self._transaction([entry], found.time_ms or record.timestamp)

    def _assembled(self, batch: Batch, now: float) -> Iterator[Transaction]:
        """The source's transactions; records of none ride along with the next, or come together at the end."""
        alone: list[Entry] = []
        for partition, records in batch.items():
            for record in records:
                for released in self._assemble(partition, record, now):
                    self._is_moved = True
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
        found = self._read(record)
        return self._assembler.change(
            partition,
            record.offset,
            found.changes,
            found.transaction,
            found.order,
            found.time_ms or record.timestamp,
            now,
            len(record.value or b""),
        )

    def _boundary(self, record: ConsumerRecord, now: float) -> Iterator[Released]:
        try:
            found = boundary(self._boundaries, record.value)
        except Unreadable as error:
            self._letters.put(record, error.reason, must_stop="without it no transaction after it is known to be whole")
            found = None
        if found is None or not found.is_end:
            self._assembler.begin(record.offset)
            return
        wanted: dict[str, int] = {}
        for collection, count in found.counts.items():
            topic = self._collections.get(collection_topic(collection))
            if topic is not None:
                wanted[topic] = wanted.get(topic, 0) + count
        yield from self._assembler.end(record.offset, found.transaction, wanted, found.time_ms, now)

    # --- records ---

    def _read(self, record: ConsumerRecord) -> Decoded:
        """What a record says, nothing if it was set aside; it then still counts in its transaction."""
        reading = self._reading.topics[record.topic]
        decoded, is_mismatch = None, False
        try:
            decoded = reading.read(record.key, record.value)
            if self._row_check is not None:
                self._row_check.check(reading.table.table, decoded.changes)
            return decoded
        except Unreadable as error:
            reason, transaction, order, is_mismatch = error.reason, error.transaction, error.order, error.is_mismatch
        except InvalidChange as error:
            reason = f"{error.message} ({error.where})"
            transaction, order = (decoded.transaction, decoded.order) if decoded else (None, 0)
        is_unknown = transaction is None and decoded is None and bool(self._settings.transaction_topic)
        must_stop = "the transaction it belongs to is unknown, and without it one would be torn" if is_unknown else ""
        self._letters.put(record, reason, is_mismatch=is_mismatch, must_stop=must_stop)
        return Decoded((), transaction, order)

    def _admitted(self, record: ConsumerRecord, found: Decoded) -> tuple[Change, ...]:
        """The changes of a record that is read in its turn, without those that another partition has outdated."""
        topic = record.topic
        tracker = self._trackers.get(topic)
        if tracker is not None:
            return tracker.admit(self._reading.topics[topic], record, found)
        recent = self._recent.get(topic)
        if recent is not None:
            reading, key = self._reading.topics[topic], record.key
            if key is None or reading.has_own_key:
                key = key_in_value(reading, found)
            if key is not None and recent.has_moved(key, record.partition):
                raise keys_moved(record)
        return found.changes

    def _track(self, topic: str) -> None:
        """From here on, look at the order of the records of each key."""
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
        """A transaction with all consumers must know before it, and the position behind it."""
        catalog = self._reading.catalog
        grown: list[Change] = []
        if catalog is not self._told:
            for change in catalog.grown_since(self._told):
                event(_log, logging.INFO, "a column is new", table=change.table, column=change.column.name)
                grown.append(change)
            self._told = catalog
        changes = Traced(grown, entries)
        return Transaction(self._vector().position(), changes, commit_time_ms=time_ms, explain=changes.explain)

    def _vector(self) -> Vector:
        if not self._settings.transaction_topic:
            offsets = {topic: tuple(numbers) for topic, numbers in self._next.items()}
            return Vector(offsets, self._topic_ids, self._told, moved=dict(self._moved))
        place = self._assembler.place()
        starts = _offsets(place.starts) | {self._settings.transaction_topic: (place.transactions,)}
        read, passed = _offsets(place.read), _offsets(place.passed)
        if _offsets(place.starts) == read:
            return Vector(starts, self._topic_ids, self._told, ended_from=place.ended_from, moved=dict(self._moved))
        passed = {} if passed == read else passed
        return Vector(starts, self._topic_ids, self._told, read, passed, place.ended_from, dict(self._moved))


def data_starts(vector: Vector, transaction_topic: str) -> dict[Partition, int]:
    """Where reading begins in the data topics."""
    return {p: at for p, at in _partitions(vector.offsets).items() if p[0] != transaction_topic}


def _place(transaction_topic: str, vector: Vector) -> Place:
    starts = data_starts(vector, transaction_topic)
    read = _partitions(vector.read) or starts
    passed = _partitions(vector.passed) or read
    transactions = vector.offsets.get(transaction_topic, (0,))[0]
    ended_from = transactions if vector.ended_from is None else vector.ended_from
    return Place(starts, read, passed, transactions, ended_from)


def _partitions(offsets: Offsets) -> dict[Partition, int]:
    return {(topic, number): at for topic, numbers in offsets.items() for number, at in enumerate(numbers)}


def _offsets(partitions: Mapping[Partition, int]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for (topic, _), offset in sorted(partitions.items()):
        found.setdefault(topic, []).append(offset)
    return {topic: tuple(numbers) for topic, numbers in found.items()}
