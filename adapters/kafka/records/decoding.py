"""Decodes one record: bytes to a payload, and the payload's fields to the columns of a row. Pure.

Both formats use these two steps. `Unwrapping` decodes bytes with a `Decoder` (JSON unless the settings name another)
and removes the schema that Kafka Connect's JSON converter puts around them. Every record of a topic has the same
schema, so its bytes are compared and not parsed again. `RowPlan` undoes the encodings of values and finds fields that
are not columns yet. `Unreadable` is raised for what cannot be read; the caller knows which record it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

import orjson

from adapters.kafka.records.catalog import TopicTable
from adapters.kafka.types import Encoded, Read, encoded_as, inferred_type, reader
from changesource_sdk import Change, ResyncRequired, Row
from protocol.data_types import INT64_MAX, INT64_MIN

Payload: TypeAlias = dict[str, object]
_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'


class Unreadable(Exception):
    """Why a record cannot be read, and the transaction it belongs to, if that much is known.

    `is_mismatch`: it can, but its key is not that of its row.
    """

    def __init__(
        self, reason: str, transaction: str | None = None, order: int = 0, *, is_mismatch: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.transaction = transaction
        self.order = order
        self.is_mismatch = is_mismatch


class Decoded(NamedTuple):
    """The changes of one record, if it has any, and its number in a transaction of the upstream.

    `source` is Debezium's block of that name.
    """

    changes: tuple[Change, ...] = ()
    transaction: str | None = None
    order: int = 0
    time_ms: float | None = None
    source: Mapping[str, object] | None = None


NOTHING = Decoded()


class Decoder(Protocol):
    """Decodes bytes to JSON-like values, for topics that have anything but JSON. Created once, without arguments.

    If it raises, the record cannot be read. A value may have the form `{"schema": …, "payload": …}` of Kafka Connect;
    its schema then gives the types of columns.
    """

    def key(self, topic: str, data: bytes) -> object:
        """A record's key."""

    def value(self, topic: str, data: bytes) -> object:
        """A record's value."""


class JsonDecoder:
    """Keys and values that are JSON."""

    def key(self, topic: str, data: bytes) -> object:
        return exact_json(data)

    def value(self, topic: str, data: bytes) -> object:
        return exact_json(data)


_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
"""Digits of the shortest integer that orjson may parse as a float because it does not fit 64 bits."""


def exact_json(data: bytes) -> object:
    """A JSON document whose integers are exact, however long."""
    document = orjson.loads(data)
    if _LONG in data.translate(_TO_ZEROS) and _has_large_float(document):
        return json.loads(data)
    return document


def _has_large_float(value: object) -> bool:
    match value:
        case float():
            return not INT64_MIN < value < INT64_MAX
        case dict():
            return any(map(_has_large_float, value.values()))
        case list():
            return any(map(_has_large_float, value))
    return False


class Unwrapped(NamedTuple):
    """A payload, and the schema it came with; the same schema is the same object."""

    payload: object
    schema: Mapping[str, object] | None


class Unwrapping:
    """Decodes the values of one topic, with the same result as decoding every record completely."""

    def __init__(self, topic: str, decoder: Decoder) -> None:
        self._topic = topic
        self._decoder = decoder
        self._is_json = isinstance(decoder, JsonDecoder)
        # The bytes before the payload of the last record with a schema, and that schema: a record with the same prefix
        # has the same schema. `_unwrapped` sets both.
        self._prefix = b""
        self._schema: Mapping[str, object] | None = None  # see `_prefix`

    def value(self, data: bytes) -> Unwrapped:
        """A record's value without its schema."""
        if self._prefix and data.startswith(self._prefix):
            try:
                return Unwrapped(orjson.loads(memoryview(data)[len(self._prefix) : -1]), self._schema)
            except ValueError:
                pass  # the complete decoding below raises a useful error
        try:
            decoded = self._decoder.value(self._topic, data)
        except Exception as error:
            raise Unreadable(f"its value cannot be decoded: {error}") from error
        return self._unwrapped(decoded, data)

    def key(self, data: bytes) -> object:
        """A record's key without its schema."""
        try:
            decoded = self._decoder.key(self._topic, data)
        except Exception as error:
            raise Unreadable(f"its key cannot be decoded: {error}") from error
        return decoded["payload"] if _is_wrapped(decoded) else decoded  # type: ignore[index]

    def _unwrapped(self, decoded: object, data: bytes) -> Unwrapped:
        if not _is_wrapped(decoded):
            return Unwrapped(decoded, None)
        assert isinstance(decoded, dict)
        schema = decoded["schema"]
        if schema != self._schema:
            self._schema = schema
            self._prefix = _schema_prefix(data, schema) if self._is_json else b""
        return Unwrapped(decoded["payload"], self._schema)


def _is_wrapped(decoded: object) -> bool:
    return isinstance(decoded, dict) and decoded.keys() == {"schema", "payload"}


def _schema_prefix(data: bytes, schema: object) -> bytes:
    """The bytes up to the payload, if the schema comes first; otherwise empty."""
    end = data.find(_PAYLOAD)
    if not data.startswith(_SCHEMA) or end < 0:
        return b""
    try:
        parsed = orjson.loads(data[len(_SCHEMA) : end])
    except ValueError:
        return b""
    return data[: end + len(_PAYLOAD)] if parsed == schema else b""


class RowPlan:
    """How to read rows of one table, under one schema or none. A new plan is made when the table gets columns."""

    def __init__(self, table: TopicTable, fields: Mapping[str, Encoded] | None, *, days: bool) -> None:
        self.table = table
        columns = {column.name: column.data_type for column in table.table.columns}
        self.names = columns.keys()
        self._reads: list[tuple[str, type, Read]] = []
        for name, data_type in columns.items():
            # With a schema, fields without an encoding have plain values; without one, they may be anything.
            kind = fields.get(name) if fields else Encoded(data_type, table.encodings.get(name, ""))
            read = reader(kind.data_type, kind.encoding, days=days) if kind and (kind.encoding or not fields) else None
            if read is not None:
                self._reads.append((name, str if data_type == "text" else type(None), read))

    def row(self, fields: Payload) -> Payload:
        """The fields as a row of the table, without fields that are not columns. May modify `fields`."""
        row = fields if fields.keys() <= self.names else {n: v for n, v in fields.items() if n in self.names}
        name = ""
        try:
            for name, fits, read in self._reads:
                value = row.get(name)
                if value is not None and type(value) is not fits:
                    row[name] = read(value)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise Unreadable(f"column {name}: {error}") from error
        return row

    def unknown(self, fields: Payload) -> dict[str, Encoded]:
        """The fields with a value that are not columns, with inferred types."""
        if self.table.is_closed:
            return {}
        types = {name: inferred_type(value) for name, value in fields.items() if name not in self.names}
        return {name: Encoded(kind) for name, kind in types.items() if kind is not None}


class KeySpelling:
    """Recognises the key of a row by its bytes, in the usual spellings of a key of one column, without decoding it.

    `is_of` is True only for keys that decode to the key of the row; others may be as well.
    """

    def __init__(self, table: TopicTable, *, is_json: bool) -> None:
        [name, *others] = table.table.key
        kind = next(column.data_type for column in table.table.columns if column.name == name)
        is_plain = name not in table.encodings and (kind == "text" or reader(kind) is None)
        self._name = name if is_json and is_plain and not others and table.key_format == "json" else None
        self._object = orjson.dumps({name: 0})[:-2]
        self._wrapped = _PAYLOAD + self._object

    def is_of(self, data: bytes, row: Row) -> bool:
        """Whether these bytes are certainly the key of a row."""
        if self._name is None:
            return False
        try:
            value = orjson.dumps(row[self._name])
        except (TypeError, KeyError):
            return False
        return (
            data == value
            or data == self._object + value + b"}"
            or (data.startswith(_SCHEMA) and data.endswith(self._wrapped + value + b"}}"))
        )


def schema_fields(schema: Mapping[str, object]) -> dict[str, Encoded]:
    """The columns that a Connect struct's schema describes."""
    fields = schema.get("fields")
    if not isinstance(fields, list):
        raise Unreadable("its schema has no fields")
    try:
        return {str(field["field"]): encoded_as(field) for field in fields}
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"its schema cannot be read: {error}") from error


def new_columns(table: TopicTable, fields: Mapping[str, Encoded]) -> dict[str, Encoded]:
    """The columns of a schema that the table does not have. Raises `ResyncRequired` if a column has another kind."""
    if table.is_closed:
        return {}
    for name, kind in fields.items():
        column = table.table.column(name)
        if column is None:
            continue
        wanted = TopicTable.of(table.topic, "one", {name: kind}, [name]).table.columns[0]
        if wanted.kind != column.kind and (wanted.kind, column.kind) != ("integer", "number"):
            raise ResyncRequired(
                "column-type-changed",
                f"column {name} of topic {table.topic} was {column.data_type} and is now {kind.data_type}",
                where=f"table {table.table.full_name}, column {name}",
                fix="nothing to do: the topics are read again from the start and consumers are reset",
            )
    return {name: kind for name, kind in fields.items() if table.table.column(name) is None}
