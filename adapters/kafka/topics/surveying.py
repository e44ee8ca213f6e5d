"""Reads topics for the columns of their tables (`records.schemas`): the newest records, or all of them.

One record with a schema is enough. If columns must be inferred from values, every record is read: a column that only an
old row has would otherwise be missing. Then all partitions are read once before the snapshot, by Spark tasks if the
pipeline runs on Spark, otherwise in this process. Declaring the columns avoids that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TypeAlias

from kafka import KafkaConsumer
from kafka.consumer.fetcher import ConsumerRecord

from adapters.kafka.broker.client import make_consumer
from adapters.kafka.records.catalog import Catalog
from adapters.kafka.records.debezium import UNAVAILABLE, UNAVAILABLE_BYTES, DebeziumFormat
from adapters.kafka.records.decoding import Payload, Unreadable, Unwrapping, schema_fields
from adapters.kafka.records.reading import make_decoder
from adapters.kafka.records.schemas import DEFAULT_KEY, Inferred, Survey, check_order_column, is_declared, table_of
from adapters.kafka.records.upsert import UpsertFormat
from adapters.kafka.settings import KafkaSettings, TableOptions
from adapters.kafka.topics.ranges import OffsetRange, read_range
from adapters.kafka.topics.spreading import spread
from changesource_sdk import ResyncRequired

NEWEST = 500
"""Records at the end of each partition that are read first."""

Surveys: TypeAlias = dict[str, Survey]


def find_catalog(
    settings: KafkaSettings, consumer: KafkaConsumer, ranges: Sequence[OffsetRange], *, thorough: bool
) -> tuple[Catalog, list[Inferred]]:
    """The tables of the topics in these ranges.

    Without `thorough`, columns are inferred from the newest records only.
    """
    topics = list(dict.fromkeys(each.topic for each in ranges))
    unknown = [topic for topic in topics if not is_declared(settings.options(topic))]
    newest = [_end_of(each) for each in ranges if each.topic in unknown]
    surveys = _added((each.topic, survey_range(settings, consumer, each)) for each in newest)
    inferred_topics = [topic for topic in unknown if _must_infer(settings.options(topic), surveys.get(topic))]
    if thorough and inferred_topics:
        whole = [each for each in ranges if each.topic in inferred_topics]
        surveys |= _added(_survey_all(settings, whole))
    made = [table_of(topic, settings.options(topic), surveys.get(topic, Survey())) for topic in topics]
    for table, _ in made:
        check_order_column(table, settings.order_of(table.topic))
    return Catalog(table for table, _ in made), [inferred for _, inferred in made if inferred is not None]


def _must_infer(options: TableOptions, survey: Survey | None) -> bool:
    return not options.columns and (survey is None or survey.described is None)


def _end_of(whole: OffsetRange) -> OffsetRange:
    return OffsetRange(whole.topic, whole.partition, max(whole.first, whole.end - NEWEST), whole.end)


def _added(parts: Iterable[tuple[str, Survey]]) -> Surveys:
    surveys: Surveys = {}
    for topic, survey in parts:
        surveys.setdefault(topic, Survey()).add(survey)
    return surveys


def _survey_all(settings: KafkaSettings, ranges: Sequence[OffsetRange]) -> list[tuple[str, Survey]]:
    def survey(wanted: OffsetRange) -> tuple[str, Survey]:
        with closing(make_consumer(settings)) as consumer:
            return wanted.topic, survey_range(settings, consumer, wanted)

    return spread(survey, [wanted for wanted in ranges if wanted.first < wanted.end])


def survey_range(settings: KafkaSettings, consumer: KafkaConsumer, wanted: OffsetRange) -> Survey:
    """Survey the records of a range. One that cannot be read is counted here and reported when its row is read."""
    surveyor = Surveyor(settings, wanted.topic)
    for batch in read_range(consumer, wanted):
        for record in batch:
            surveyor.take(record)
    return surveyor.survey


class Surveyor:
    """Surveys the records of one topic."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self.survey = Survey()
        self._format = DebeziumFormat() if settings.format == "debezium" else UpsertFormat()
        self._is_debezium = settings.format == "debezium"
        self._options = settings.options(topic)
        self._ignores_keys = settings.key_mismatch == "value"
        self._unwrapping = Unwrapping(topic, make_decoder(settings.decoder))
        self._schema: Mapping[str, object] | None = None  # of the last record with one; `take` sets it

    def take(self, record: ConsumerRecord) -> None:
        """Survey one record."""
        if record.value is None:
            return
        try:
            payload, schema = self._unwrapping.value(record.value)
            key = None if self._ignores_keys else self._key(record.key)
            if schema is not None and schema is not self._schema:
                described = self._format.row_schema(schema)
                if described is not None:
                    self.survey.describe(schema_fields(described), record.timestamp)
                self._schema = schema
        except Unreadable as error:
            self._unread(record, error.reason)
            return
        except ResyncRequired:
            return
        if key is not None and self.survey.key is None:
            self.survey.key = tuple(key)
        row = self._row(payload, key or {})
        if row is not None:
            self.survey.add_row(row)
        elif not self._says_nothing(payload):
            self._unread(record, f"its value is no {'Debezium envelope' if self._is_debezium else 'object of columns'}")

    def _unread(self, record: ConsumerRecord, reason: str) -> None:
        self.survey.add_unread(f"{record.topic}[{record.partition}] offset {record.offset}: {reason}")

    def _says_nothing(self, payload: object) -> bool:
        """Whether a value has no row by design: a delete, a truncate, or a null in an envelope of Kafka Connect."""
        return payload is None or (self._is_debezium and isinstance(payload, dict) and "op" in payload)

    def _key(self, data: bytes | None) -> Payload | None:
        """The key's columns; a single value is that of the only key column."""
        if data is None:
            return None
        name = self._options.key[0] if len(self._options.key) == 1 else DEFAULT_KEY[0]
        if self._options.key_format == "text":
            return {name: data.decode(errors="replace")}
        decoded = self._unwrapping.key(data)
        if isinstance(decoded, dict):
            return decoded
        return {name: decoded} if decoded is not None else None

    def _row(self, payload: object, key: Payload) -> Payload | None:
        if not isinstance(payload, dict):
            return None
        if not self._is_debezium:
            return {**key, **payload}
        after = payload.get("after")
        if not isinstance(after, dict):
            return None
        return {name: None if value in (UNAVAILABLE, UNAVAILABLE_BYTES) else value for name, value in after.items()}
