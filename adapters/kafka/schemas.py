"""Which tables the topics hold: declared by the user, told by the records' own schema, or inferred from a sample. Pure.

- Records with an embedded schema (Kafka Connect's JSON converter) describe their columns and key: `described_table`.
- Plain JSON says nothing; `infer_table` looks at a sample of rows and says what it took them for, so that a user can
  see it at start and in `doctor`, and declare the table where it is wrong.

A sample proves little: inferred columns are optional, all integers have 64 bits, and a column in which kinds were mixed
is JSON, which holds them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from changesource_sdk.adapter import Column, Row, Table
from changesource_sdk.errors import InvalidSchema

PLAIN_TYPES: Mapping[str, str] = {
    "boolean": "bool",
    "int8": "int2",
    "int16": "int2",
    "int32": "int4",
    "int64": "int8",
    "float": "float4",
    "float32": "float4",
    "double": "float8",
    "float64": "float8",
    "string": "text",
    "bytes": "bytea",
    "array": "json",
    "map": "json",
    "struct": "json",
}
"""Column types of Kafka Connect's own types."""

NAMED_TYPES: Mapping[str, str] = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time",
    "io.debezium.time.MicroTime": "time",
    "io.debezium.time.NanoTime": "time",
    "io.debezium.time.Timestamp": "timestamp",
    "io.debezium.time.MicroTimestamp": "timestamp",
    "io.debezium.time.NanoTimestamp": "timestamp",
    "io.debezium.time.ZonedTimestamp": "timestamptz",
    "io.debezium.time.ZonedTime": "timetz",
    "io.debezium.time.Year": "int4",
    "io.debezium.data.VariableScaleDecimal": "numeric",
    "io.debezium.data.Json": "json",
    "io.debezium.data.Uuid": "uuid",
    "io.debezium.data.Enum": "text",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time",
    "org.apache.kafka.connect.data.Timestamp": "timestamp",
    "org.apache.kafka.connect.data.Decimal": "numeric",
}
"""Column types of the named schemas that Debezium and Kafka Connect give their values."""

_KINDS: Mapping[type, str] = {
    bool: "bool",
    int: "int8",
    float: "float8",
    str: "text",
    dict: "json",
    list: "json",
}


def described_column(field: Mapping[str, object]) -> Column:
    """The column that a field of an embedded schema describes."""
    name, kind = str(field["field"]), str(field["type"])
    known = NAMED_TYPES.get(str(field.get("name"))) or PLAIN_TYPES.get(kind)
    if known is None:
        raise InvalidSchema(
            "unknown-field-type",
            f"the embedded schema gives the field {name} the type {kind}, which stands for no column",
            where=f"field {name}",
            fix="declare the table's columns in the settings",
        )
    return Column(name, known, optional=bool(field.get("optional", False)))


def described_table(name: str, key: Sequence[str], fields: Iterable[Mapping[str, object]]) -> Table:
    """The table whose rows have these fields of an embedded schema."""
    return Table(name, [described_column(field) for field in fields], key=tuple(key))


@dataclass(frozen=True, slots=True)
class Inferred:
    """A table as a sample of its rows suggests it, and what led to that, a line for each column."""

    table: Table
    rows: int
    findings: tuple[str, ...]

    def report(self) -> str:
        """All of it in one line."""
        return f"{self.table.full_name}, from {self.rows} rows: {'; '.join(self.findings)}"


def infer_table(name: str, key: Sequence[str], rows: Iterable[Row]) -> Inferred:
    """The table that all these rows fit. Columns stand in the order in which they were met, the key first."""
    kinds: dict[str, Counter[str]] = {column: Counter() for column in key}
    count = 0
    for row in rows:
        count += 1
        for column, value in row.items():
            kinds.setdefault(column, Counter())[_kind(value)] += 1
    _require_key(name, key, kinds, count)
    columns = [Column(column, _joined(found), optional=column not in key) for column, found in kinds.items()]
    findings = tuple(_finding(column, kinds[column.name], count, column.name in key) for column in columns)
    return Inferred(Table(name, columns, key=tuple(key)), count, findings)


def _require_key(name: str, key: Sequence[str], kinds: Mapping[str, Counter[str]], count: int) -> None:
    for column in key:
        if kinds[column].total() < count or kinds[column]["null"] or not count:
            raise InvalidSchema(
                "key-not-found",
                f"the key column {column} of {name} is not in every one of the {count} sampled rows",
                where=name,
                fix="name the columns of the key, or declare the table, in the settings",
            )


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), "text")


def _joined(found: Counter[str]) -> str:
    """The narrowest type that holds all kinds."""
    kinds = found.keys() - {"null"}
    if not kinds:
        return "json"
    if len(kinds) == 1:
        return next(iter(kinds))
    return "float8" if kinds == {"int8", "float8"} else "json"


def _finding(column: Column, found: Counter[str], rows: int, is_key: bool) -> str:
    notes = ["key"] if is_key else []
    kinds = sorted(kind for kind in found if kind != "null")
    if len(kinds) > 1:
        notes.append(f"mixed: {', '.join(kinds)}")
    if not kinds:
        notes.append("never a value")
    elif absent := rows - found.total() + found["null"]:
        notes.append(f"null or absent in {absent}")
    told = f" ({'; '.join(notes)})" if notes else ""
    return f"{column.name} {column.data_type}{told}"
