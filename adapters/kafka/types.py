"""Values of records to values of columns: dates, decimals and documents in their many encodings. Pure.

JSON knows neither dates nor decimals, so producers encode them: Debezium names the encoding in the schema of the
value (`io.debezium.time.MicroTimestamp`), or leaves it out with the schema; others write ISO texts. An `Encoded` names
a column's data type and the encoding of its values, which is a word users write in their settings, too (`ENCODINGS`);
`encoded_as` takes both from a field's schema, and `reader` gives the function that undoes the encoding.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import NamedTuple, TypeAlias

from changesource_sdk import JsonText

Read: TypeAlias = Callable[[object], object]
"""Makes a column's value of a record's, never called with None; raises ValueError or TypeError for what it is not."""

_DAY_MS = 86_400_000


class Encoded(NamedTuple):
    """A column's data type, and how records encode its values; without `encoding`, as usual for the type."""

    data_type: str
    encoding: str = ""


def days_to_ms(value: object) -> object:
    """Days since 1970, or an ISO date."""
    return date.fromisoformat(value) if isinstance(value, str) else _whole(value) * _DAY_MS


def moment(value: object) -> object:
    """Milliseconds since 1970, or an ISO date and time, in UTC unless it says otherwise."""
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    return value if type(value) is float else _whole(value)


def day(value: object) -> object:
    """Milliseconds of a UTC midnight, or an ISO date."""
    return date.fromisoformat(value) if isinstance(value, str) else _whole(value)


def clock(value: object) -> object:
    """Milliseconds since midnight, or an ISO time of day; one with an offset is moved to UTC."""
    if not isinstance(value, str):
        return _whole(value)
    # Only a whole moment can be moved over midnight.
    parsed = time.fromisoformat(value)
    if parsed.tzinfo is None:
        return parsed
    return datetime.combine(date(2000, 1, 2), parsed).astimezone(UTC).time()


def micros_to_ms(value: object) -> object:
    """Microseconds, the fraction kept."""
    number = _whole(value)
    return number // 1000 if number % 1000 == 0 else number / 1000


def nanos_to_ms(value: object) -> object:
    """Nanoseconds, to the microsecond."""
    return micros_to_ms(_whole(value) // 1000)


def decimal(value: object) -> object:
    """A number, or a decimal spelled out."""
    if isinstance(value, str):
        try:
            return Decimal(value)
        except InvalidOperation:
            raise ValueError("a text that is no decimal number") from None
    return value


def scaled_decimal(scale: int) -> Read:
    """Base64 of a signed big-endian integer, to be divided by a power of ten."""

    def read(value: object) -> object:
        # From a text, since arithmetic would round to the digits of the context.
        return Decimal(f"{int.from_bytes(_bytes(value), 'big', signed=True)}E-{scale}")

    return read


def variable_decimal(value: object) -> object:
    """The same, in an object with its scale."""
    if not isinstance(value, Mapping):
        raise TypeError("a decimal of variable scale is an object of scale and value")
    return scaled_decimal(_whole(value["scale"]))(value["value"])


def document(value: object) -> object:
    """A JSON document in a text."""
    return JsonText(value) if isinstance(value, str) else value


def as_text(value: object) -> object:
    """Texts, and numbers and truth values as JSON spells them, for columns that hold more than one kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _bytes(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError("bytes travel as base64 text")
    return b64decode(value, validate=True)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"a whole number is needed, not {type(value).__name__}")
    return value


ENCODINGS: Mapping[str, Read] = {
    "days": days_to_ms,
    "millis": moment,
    "clock": clock,
    "micros": micros_to_ms,
    "nanos": nanos_to_ms,
    "document": document,
    "base64": _bytes,
    "variable-decimal": variable_decimal,
}
"""Encodings by the words for them; `decimal:2` is base64 of an integer with two decimals."""

LOGICAL: Mapping[str, Encoded] = {
    "io.debezium.time.Date": Encoded("date", "days"),
    "io.debezium.time.Timestamp": Encoded("timestamp", "millis"),
    "io.debezium.time.MicroTimestamp": Encoded("timestamp", "micros"),
    "io.debezium.time.NanoTimestamp": Encoded("timestamp", "nanos"),
    "io.debezium.time.ZonedTimestamp": Encoded("timestamptz", "millis"),
    "io.debezium.time.Time": Encoded("time", "clock"),
    "io.debezium.time.MicroTime": Encoded("time", "micros"),
    "io.debezium.time.NanoTime": Encoded("time", "nanos"),
    "io.debezium.time.ZonedTime": Encoded("timetz", "clock"),
    "io.debezium.time.Year": Encoded("int4"),
    "io.debezium.time.MicroDuration": Encoded("int8"),
    "io.debezium.data.Json": Encoded("json", "document"),
    "io.debezium.data.Uuid": Encoded("uuid"),
    "io.debezium.data.VariableScaleDecimal": Encoded("numeric", "variable-decimal"),
    "org.apache.kafka.connect.data.Date": Encoded("date", "days"),
    "org.apache.kafka.connect.data.Time": Encoded("time", "clock"),
    "org.apache.kafka.connect.data.Timestamp": Encoded("timestamp", "millis"),
}
"""Types by the names that schemas give them; the rest go by their plain type."""

PLAIN: Mapping[str, Encoded] = {
    "boolean": Encoded("bool"),
    "int8": Encoded("int2"),
    "int16": Encoded("int2"),
    "int32": Encoded("int4"),
    "int64": Encoded("int8"),
    "float": Encoded("float4"),
    "float32": Encoded("float4"),
    "double": Encoded("float8"),
    "float64": Encoded("float8"),
    "string": Encoded("text"),
    "bytes": Encoded("bytea", "base64"),
    "array": Encoded("json"),
    "map": Encoded("json"),
    "struct": Encoded("json"),
}


def encoded_as(field: Mapping[str, object]) -> Encoded:
    """A field's type and encoding by its Connect schema. Raises ValueError for a type nobody knows."""
    name, plain = field.get("name"), str(field.get("type"))
    if name == "org.apache.kafka.connect.data.Decimal":
        parameters = field.get("parameters")
        scale = parameters.get("scale", 0) if isinstance(parameters, Mapping) else 0
        return Encoded("numeric", f"decimal:{scale}")
    known = LOGICAL.get(str(name)) or PLAIN.get(plain)
    if known is None:
        raise ValueError(f"a schema gives {field.get('field')!r} the type {plain!r}, which Kafka Connect does not have")
    return known


def reader(data_type: str, encoding: str = "", *, days: bool = False) -> Read | None:
    """What undoes an encoding, None if values are taken as they are.

    Without an encoding, times are ISO texts or milliseconds; a date is a number of `days` where the format says so.
    Raises ValueError for a word nobody knows.
    """
    if encoding.startswith("decimal:"):
        return scaled_decimal(int(encoding.removeprefix("decimal:")))
    if encoding:
        if encoding not in ENCODINGS:
            raise ValueError(f"no encoding is called {encoding!r}; known: {', '.join(ENCODINGS)} and decimal:N")
        return ENCODINGS[encoding]
    name = data_type.lower()
    if name == "date":
        return days_to_ms if days else day
    if name.startswith("timestamp"):
        return moment
    if name.startswith("time"):
        return clock
    if name.startswith(("numeric", "decimal")):
        return decimal
    return {"text": as_text, "bytea": _bytes}.get(name)


def inferred_type(value: object) -> str | None:
    """The data type that suits a JSON value, None for null."""
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            return "int8"
        case float():
            return "float8"
        case str():
            return "text"
    return "json"
