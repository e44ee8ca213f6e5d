"""The columns of the topics' tables: declared by the user, from the schema in records, or inferred. Pure.

A `Survey` collects what the records of a topic say about its columns; Spark tasks survey parts of a topic, and the
results are added up. `table_of` then uses, in this order: the columns that the user declared; the newest schema that
came with a record; the kinds of the values. What it infers from values is reported (`Inferred`), so that a user can see
it at start and in `doctor`, and declare the table if it is wrong.

Inferred columns are optional, integers have 64 bits, and larger ones make a column text. A column of mixed kinds is
text, too, or JSON if documents are among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from adapters.kafka.key_order import COLUMN
from adapters.kafka.records.catalog import TopicTable
from adapters.kafka.settings import TableOptions
from adapters.kafka.types import Encoded
from changesource_sdk import ConfigurationError, InvalidSchema, Row
from protocol.data_types import INT64_MAX, INT64_MIN

DEFAULT_KEY = ("id",)
"""The key column of records whose key is a single value and has no name."""

NULL = "null"
LARGE = "integers beyond 64 bits"


@dataclass(slots=True)
class Survey:
    """What records of one topic say about its table. Adding up surveys of parts equals surveying all records."""

    rows: int = 0  # surveyed so far
    kinds: dict[str, Counter[str]] = field(default_factory=dict)  # rows by column and kind of value
    key: tuple[str, ...] | None = None  # columns of the first record key that is an object
    described: Mapping[str, Encoded] | None = None  # columns of the newest schema
    described_at: int = -1  # timestamp of the record with that schema, in milliseconds
    # Records with a value that gave no row, and one of them with the reason.
    unread: int = 0
    example: str = ""  # the first of them

    def add_unread(self, example: str) -> None:
        """A record with a value that gives no row."""
        self.unread += 1
        self.example = self.example or example

    def add_row(self, row: Row) -> None:
        """Count the kinds of a row's values."""
        self.rows += 1
        for name, value in row.items():
            kinds = self.kinds.get(name)
            if kinds is None:
                kinds = self.kinds[name] = Counter()
            kinds[_kind(value)] += 1

    def describe(self, columns: Mapping[str, Encoded], time_ms: int) -> None:
        """Note a schema that came with a record; the newest is kept."""
        if time_ms >= self.described_at:
            self.described, self.described_at = columns, time_ms

    def add(self, other: Survey) -> None:
        """Add the survey of another part of the topic."""
        self.rows += other.rows
        for name, kinds in other.kinds.items():
            self.kinds.setdefault(name, Counter()).update(kinds)
        self.key = self.key or other.key
        self.unread += other.unread
        self.example = self.example or other.example
        if other.described is not None:
            self.describe(other.described, other.described_at)


@dataclass(frozen=True, slots=True)
class Inferred:
    """What a topic's values were taken for, column by column."""

    topic: str
    table: str
    rows: int
    findings: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table}, from {self.rows} rows of topic {self.topic}: {'; '.join(self.findings)}"


def is_declared(options: TableOptions) -> bool:
    """Whether the settings alone define a topic's table."""
    return bool(options.columns) and bool(options.key)


def table_of(topic: str, options: TableOptions, survey: Survey) -> tuple[TopicTable, Inferred | None]:
    """The table of a topic, and what was inferred if neither settings nor schemas define it."""
    key = options.key or survey.key or DEFAULT_KEY
    if options.columns:
        return _made(topic, options, options.columns, key, is_closed=True), None
    if survey.described is not None:
        columns = {**{name: Encoded("text") for name in key}, **survey.described}
        return _made(topic, options, columns, key), None
    if not survey.rows:
        raise InvalidSchema(
            "columns-unknown",
            f"topic {topic} has no records that show the columns of its table"
            f"{f'; {survey.unread} could not be read, such as {survey.example}' if survey.unread else ''}",
            where=f"topic {topic}",
            fix=_unread_fix(options)
            if survey.unread
            else f"declare them: [set.tables.{options.name}] with key and columns; "
            "or wait: the topic is read again until it has a record",
        )
    kinds = {name: survey.kinds.get(name, Counter({NULL: survey.rows})) for name in (*key, *survey.kinds)}
    columns = {name: Encoded(_joined(kinds_of_column)) for name, kinds_of_column in kinds.items()}
    findings = tuple(
        _finding(name, columns[name].data_type, kinds_of_column, survey.rows, name in key)
        for name, kinds_of_column in kinds.items()
    )
    return _made(topic, options, columns, key), Inferred(topic, options.name, survey.rows, findings)


def check_order_column(table: TopicTable, order_by: str) -> None:
    """Raise unless the column that orders keys over partitions is there."""
    name = order_by.removeprefix(COLUMN)
    if order_by.startswith(COLUMN) and table.table.column(name) is None:
        raise ConfigurationError(
            "order-column-unknown",
            f"table {table.table.full_name} has no column {name}, which is to order its records",
            where=f"topic {table.topic}",
            fix=f"name one that is there: {', '.join(table.table.column_names)}",
        )


def _unread_fix(options: TableOptions) -> str:
    return (
        "see whether `format` suits the records (upsert: the value is the row; debezium: an envelope with `op`), and "
        f'`key_format` their keys (key_format = "text" in [set.tables.{options.name}] if keys are plain texts)'
    )


def _made(
    topic: str, options: TableOptions, columns: Mapping[str, Encoded], key: Sequence[str], *, is_closed: bool = False
) -> TopicTable:
    return TopicTable.of(topic, options.name, columns, key, is_closed=is_closed, key_format=options.key_format)


def reports(inferred: Iterable[Inferred]) -> str:
    return ". ".join(map(str, inferred))


def _kind(value: object) -> str:
    match value:
        case None:
            return NULL
        case bool():
            return "bool"
        case int():
            return "int8" if INT64_MIN <= value <= INT64_MAX else LARGE
        case float():
            return "float8"
        case str():
            return "text"
    return "json"


def _joined(counted: Counter[str]) -> str:
    """The narrowest type that holds all kinds; anything where there was no value yet."""
    kinds = counted.keys() - {NULL}
    if len(kinds) == 1:
        return next(iter(kinds)) if LARGE not in kinds else "text"
    if kinds == {"int8", "float8"}:
        return "float8"
    return "json" if not kinds or "json" in kinds else "text"


def _finding(name: str, data_type: str, counted: Counter[str], rows: int, is_key: bool) -> str:
    notes = ["key"] if is_key else []
    kinds = sorted(counted.keys() - {NULL})
    if kinds == [LARGE]:
        notes.append(LARGE)
    if len(kinds) > 1:
        notes.append(f"mixed: {', '.join(kinds)}")
    if not kinds:
        notes.append("never a value")
    elif absent := rows - counted.total() + counted[NULL]:
        notes.append(f"null or absent in {absent}")
    remarks = f" ({'; '.join(notes)})" if notes else ""
    return f"{name} {data_type}{remarks}"
