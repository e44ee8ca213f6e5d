"""Reads the records of all topics, with tables that get columns as records bring them. Pure.

`TopicReading` reads one topic: it has the plan by which rows are read, and makes a new one when a record brings another
schema or new fields. Consumers must get new columns (`Catalog.grown_since`) before the row that brought them. The
formats (`debezium`, `upsert`) interpret payloads.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress

from adapters.kafka.records.catalog import Catalog, TopicTable
from adapters.kafka.records.debezium import DebeziumFormat
from adapters.kafka.records.decoding import (
    Decoded,
    Decoder,
    JsonDecoder,
    KeySpelling,
    Payload,
    RowPlan,
    Unreadable,
    Unwrapping,
    new_columns,
    schema_fields,
)
from adapters.kafka.records.upsert import UpsertFormat, whole_key
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.types import Encoded
from changesource_sdk import ConfigurationError, Row
from changesource_sdk.toolkit import kept_json

SHOWN_KEY = 200
"""Characters of a key in a message."""


class TopicReading:
    """One topic's records. Invariant: `table` has every column of the rows returned so far."""

    def __init__(self, table: TopicTable, settings: KafkaSettings, decoder: Decoder, *, grows: bool) -> None:
        self._format = DebeziumFormat() if settings.format == "debezium" else UpsertFormat()
        self._days = settings.format == "debezium"
        self._unwrapping = Unwrapping(table.topic, decoder)
        self._grows = grows
        self.has_own_key = settings.key_mismatch == "value"
        # The schema of the last record and its columns; None if it had no schema. `_follow_schema` sets both.
        self._schema: Mapping[str, object] | None = None
        self._fields: Mapping[str, Encoded] | None = None  # see `_schema`
        # Replaced when the schema changes or the table gets columns; has the current table.
        self._plan = RowPlan(table, None, days=self._days)
        self._key_spelling = KeySpelling(table, is_json=isinstance(decoder, JsonDecoder))

    @property
    def table(self) -> TopicTable:
        return self._plan.table

    def read(self, key: bytes | None, value: bytes | None) -> Decoded:
        """Decode a record. Raises `Unreadable`."""
        if value is None:
            return self._format.tombstone(self, key)
        payload, schema = self._unwrapping.value(value)
        if schema is not self._schema:
            self._follow_schema(schema)
        return self._format.record(self, key, value, payload)

    def key(self, data: bytes | None) -> Payload | None:
        """The columns of a record's key; None if it has none."""
        if data is None:
            return None
        table = self.table
        if table.key_format == "text":
            return {table.table.key[0]: _text(data)}
        decoded = self._unwrapping.key(data)
        if isinstance(decoded, dict):
            return decoded
        return {table.table.key[0]: decoded} if len(table.table.key) == 1 and decoded is not None else None

    def row_key(self, key: bytes | None, value: bytes | None) -> Payload | None:
        """The key of the row that a record is about, for one that `read` refuses; None if it cannot be read either."""
        if not self.has_own_key:
            with suppress(Unreadable):
                if (columns := self.key(key)) is not None:
                    return whole_key(self, columns)
        if value is not None:
            with suppress(Unreadable):
                image = self._format.image(self._unwrapping.value(value).payload)
                return None if image is None else whole_key(self, image)
        return None

    def check_key(self, data: bytes | None, row: Row) -> None:
        """Raise `Unreadable` unless a record's key is that of its row, or need not be.

        A record without a key passes: nothing but its value names its row.
        """
        if data is None or self.has_own_key or self._key_spelling.is_of(data, row):
            return
        names = self.table.table.key
        try:
            key_columns = self.key(data)
            if key_columns is not None:
                columns = self._plan.row({name: key_columns[name] for name in names})
                if all(columns[name] == row.get(name) for name in names):
                    return
        except (Unreadable, KeyError):
            pass
        expected = ", ".join(f"{name} = {_shown(kept_json(row.get(name)))}" for name in names)
        raise Unreadable(f"its key is {_shown(data)}, and its row has {expected}", is_mismatch=True)

    def row(self, fields: Payload) -> Payload:
        """The fields as a row of the table; new fields become columns first."""
        if self._grows and not fields.keys() <= self._plan.names and (unknown := self._plan.unknown(fields)):
            self._grow(unknown)
        return self._plan.row(fields)

    def _follow_schema(self, schema: Mapping[str, object] | None) -> None:
        """Adopt the schema of the current record, which differs from the last one."""
        described = self._format.row_schema(schema) if schema is not None else None
        self._fields = schema_fields(described) if described is not None else None
        added = new_columns(self.table, self._fields) if self._fields and self._grows else {}
        if added:
            self._grow(added)
        else:
            self._plan = RowPlan(self.table, self._fields, days=self._days)
        self._schema = schema

    def _grow(self, columns: Mapping[str, Encoded]) -> None:
        self._plan = RowPlan(self.table.added(columns), self._fields, days=self._days)


class RecordReader:
    """The records of every followed topic. With `grows`, new fields become columns."""

    def __init__(self, settings: KafkaSettings, catalog: Catalog, *, grows: bool = True) -> None:
        decoder = make_decoder(settings.decoder)
        self._catalog = catalog  # the property `catalog` updates it when a topic's table got columns
        self.topics = {
            topic: TopicReading(table, settings, decoder, grows=grows) for topic, table in catalog.by_topic.items()
        }

    @property
    def catalog(self) -> Catalog:
        for topic, reading in self.topics.items():
            if reading.table is not self._catalog.by_topic[topic]:
                self._catalog = self._catalog.grown(reading.table)
        return self._catalog

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Decoded:
        """Decode a record. Raises `Unreadable`."""
        return self.topics[topic].read(key, value)


def make_decoder(path: str) -> Decoder:
    """The user's decoder, or the one for JSON."""
    if not path:
        return JsonDecoder()
    module, _, name = path.partition(":")
    try:
        made: Decoder = getattr(importlib.import_module(module), name)()
    except Exception as error:
        raise ConfigurationError(
            "decoder-unusable",
            f"the decoder {path!r} cannot be made: {type(error).__name__}: {error}",
            where="decoder",
            fix="give module:Class of a class with key(topic, data) and value(topic, data), made without arguments",
        ) from error
    if not callable(getattr(made, "key", None)) or not callable(getattr(made, "value", None)):
        raise ConfigurationError(
            "decoder-unusable", f"{path} has no methods key and value", "decoder", "define both: see `Decoder`"
        )
    return made


def _shown(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}…"


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"its key is no text: {error}") from error
