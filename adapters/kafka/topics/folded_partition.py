"""One partition of a topic up to a fixed end, folded to the last row of each key.

The unit of a snapshot's parallel reading. Keys whose newest record is in another partition (`keys.moved`) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from kafka import KafkaConsumer
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.broker.client import make_consumer, translated_errors
from adapters.kafka.key_order import key_bytes
from adapters.kafka.records.catalog import TopicTable
from adapters.kafka.records.dead_letters import DeadLetters, bad_row, poison_record, record_name
from adapters.kafka.records.decoding import Decoded, Unreadable
from adapters.kafka.records.reading import TopicReading, make_decoder
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.topics.fold import Fold
from adapters.kafka.topics.key_set import KeySet
from adapters.kafka.topics.ranges import OffsetRange, read_range
from adapters.kafka.transactions.spool import Where
from changesource_sdk import (
    AdapterError,
    BadRow,
    Change,
    ChangesourceError,
    Delete,
    Insert,
    InvalidChange,
    Row,
    Truncate,
    Update,
)

NONE = KeySet()


@dataclass(frozen=True, slots=True)
class FoldedPartition:
    """The last rows of one partition.

    After `tail_start`, only records of `finished` transactions count. `is_alone`: its topic has no other partitions.
    `outdated` are keys whose newest record is in another partition, or unknown.
    """

    settings: KafkaSettings
    source: TopicTable
    records: OffsetRange
    tail_start: int
    finished: frozenset[str] = frozenset()
    is_alone: bool = True
    outdated: KeySet = NONE

    @property
    def table(self) -> str:
        return self.source.table.full_name

    def rows(self) -> Generator[Row]:
        """The rows, in any order, with all columns of the table."""
        if self.records.first >= self.records.end:
            return
        table = self.source.table
        blank = dict.fromkeys(table.column_names)
        with Fold() as fold:
            with closing(make_consumer(self.settings)) as consumer, translated_errors(self.settings):
                self._fill(fold, consumer)
            for row in fold.rows():
                key = row.key if isinstance(row, BadRow) else row
                if not self.outdated or key_bytes(key, table.key) not in self.outdated:
                    yield row if isinstance(row, BadRow) else {**blank, **row}

    def explain(self, error: InvalidChange, is_refused: Callable[[Row], bool]) -> ChangesourceError:
        """The error for a row that no consumer can hold, with the record that brought it."""
        with closing(self.rows()) as rows:
            row = next(filter(is_refused, rows), None)
        return error if row is None else poison_record(self._record_of(row), f"{error.message} ({error.where})")

    def reading(self) -> TopicReading:
        """Decodes the records into the columns of the table; new fields are ignored."""
        return TopicReading(self.source, self.settings, make_decoder(self.settings.decoder), grows=False)

    def decoded(
        self, consumer: KafkaConsumer, reading: TopicReading, letters: DeadLetters | None = None
    ) -> Iterator[tuple[ConsumerRecord, Decoded]]:
        """The records that count, decoded. One that cannot be read is a `BadRow`, and goes to `letters`."""
        for batch in read_range(consumer, self.records):
            for record in batch:
                try:
                    decoded = reading.read(record.key, record.value)
                except Unreadable as error:
                    if not self._counts(record, error.transaction):
                        continue
                    key = None if error.is_mismatch else reading.row_key(record.key, record.value)
                    if letters is not None:
                        letters.put(record, error.reason, key, is_mismatch=error.is_mismatch)
                    if key is not None:
                        yield record, Decoded((bad_row(record, error.reason, self.table, key),))
                    continue
                if self._counts(record, decoded.transaction):
                    yield record, decoded

    def _record_of(self, row: Row) -> Where:
        """The last record of a row."""
        names = self.source.table.key
        wanted, offset = key_bytes(row, names), self.records.first
        with closing(make_consumer(self.settings)) as consumer, translated_errors(self.settings):
            for record, decoded in self.decoded(consumer, self.reading()):
                written = (change.row for change in decoded.changes if isinstance(change, Insert | Update))
                offset = record.offset if any(key_bytes(each, names) == wanted for each in written) else offset
        return self.records.topic, self.records.partition, offset

    def _fill(self, fold: Fold, consumer: KafkaConsumer) -> None:
        for record, decoded in self.decoded(consumer, self.reading(), DeadLetters(self.settings)):
            for change in decoded.changes:
                if isinstance(change, Truncate) and not self.is_alone:
                    raise torn_truncate(record)
                _put(fold, change, self.source.table.key, len(self.source.table.columns))

    def _counts(self, record: ConsumerRecord, transaction: str | None) -> bool:
        return record.offset < self.tail_start or transaction in self.finished


def _put(fold: Fold, change: Change, key: Sequence[str], columns: int) -> None:
    match change:
        case Insert(_, row):
            fold.put(key_bytes(row, key), row)
        case Update(_, row, old_key):
            if old_key is not None:
                fold.remove(key_bytes(old_key, key))
            known = fold.put if len(row) == columns else fold.merge
            known(key_bytes(row, key), row)
        case Delete(_, gone):
            fold.remove(key_bytes(gone, key))
        case BadRow(_, bad):
            fold.put_bad(key_bytes(bad, key), change)
        case Truncate():
            fold.clear()


def torn_truncate(record: ConsumerRecord) -> AdapterError:
    """The error for a truncate in a topic of several partitions."""
    return AdapterError(
        "truncate-unordered",
        "a truncate is among records of other partitions, and its order relative to them is unknown",
        where=record_name((record.topic, record.partition, record.offset)),
        fix="give the topic one partition, or let Debezium leave truncates out (skipped.operations=t)",
    )
