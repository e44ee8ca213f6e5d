"""The table of each topic, with the columns that consumers have at a position. Pure.

The columns are part of the position (`to_json`): after a restart nothing else says which columns consumers already
have. In the stream a table only gets columns: a new field becomes a column; a field that records no longer have stays,
as null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from adapters.kafka.types import Encoded
from changesource_sdk import AdapterError, AddColumn, Column, ConfigurationError, Position, Table


@dataclass(frozen=True, slots=True)
class TopicTable:
    """One table and the topic its rows come from.

    `is_closed`: the user declared the columns, and fields beyond them are not synced. `key_format` is `json`, or `text`
    for keys that are plain texts. `encodings` are those of columns, where records do not bring a schema.
    """

    topic: str
    table: Table
    encodings: Mapping[str, str]
    is_closed: bool = False
    key_format: str = "json"

    @classmethod
    def of(
        cls,
        topic: str,
        name: str,
        columns: Mapping[str, Encoded],
        key: Sequence[str],
        *,
        is_closed: bool = False,
        key_format: str = "json",
    ) -> TopicTable:
        """A table of these columns; key columns come first if they are not among them."""
        missing = [column for column in key if column not in columns]
        if missing:
            raise ConfigurationError(
                "key-unknown",
                f"the key of table {name} has {', '.join(missing)}, which is none of its columns",
                where=f"topic {topic}",
                fix=f"name columns that are there: {', '.join(columns)}",
            )
        made = Table(name, [Column(column, kind.data_type) for column, kind in columns.items()], key=tuple(key))
        encodings = {column: kind.encoding for column, kind in columns.items() if kind.encoding}
        return cls(topic, made, encodings, is_closed, key_format)

    def added(self, columns: Mapping[str, Encoded]) -> TopicTable:
        """The table with these columns as well."""
        new = [Column(name, kind.data_type) for name, kind in columns.items()]
        table = replace(self.table, columns=(*self.table.columns, *new))
        encodings = dict(self.encodings) | {name: kind.encoding for name, kind in columns.items() if kind.encoding}
        return replace(self, table=table, encodings=encodings)

    def to_json(self) -> dict[str, Position]:
        """The table as part of a position."""
        columns: list[Position] = [
            [column.name, column.data_type, self.encodings.get(column.name, "")] for column in self.table.columns
        ]
        flags: dict[str, Position] = {"closed": True} if self.is_closed else {}
        text: dict[str, Position] = {"text": True} if self.key_format == "text" else {}
        return {"table": self.table.full_name, "columns": columns, "key": list(self.table.key), **flags, **text}


class Catalog:
    """The tables by topic. Immutable."""

    def __init__(self, tables: Iterable[TopicTable]) -> None:
        self.by_topic = {table.topic: table for table in tables}
        names: dict[str, str] = {}
        for table in self.by_topic.values():
            other = names.setdefault(table.table.full_name.lower(), table.topic)
            if other != table.topic:
                raise ConfigurationError(
                    "table-name-taken",
                    f"the topics {other} and {table.topic} would both be table {table.table.full_name}",
                    where="topics",
                    fix=f'name the tables: [set.tables.NAME] with topic = "{table.topic}"',
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self.by_topic == other.by_topic

    def __hash__(self) -> int:
        return hash(tuple(self.by_topic))

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(topic_table.table for topic_table in self.by_topic.values())

    def grown(self, table: TopicTable) -> Catalog:
        """A catalog with one table replaced."""
        return Catalog((self.by_topic | {table.topic: table}).values())

    def grown_since(self, before: Catalog) -> list[AddColumn]:
        """The columns that consumers with an earlier catalog lack."""
        return [
            AddColumn(now.table.full_name, column)
            for topic, now in self.by_topic.items()
            if now is not before.by_topic[topic]
            for column in now.table.columns
            if before.by_topic[topic].table.column(column.name) is None
        ]

    @cached_property
    def as_json(self) -> dict[str, Position]:
        """The catalog as part of a position; computed once, since every position has it."""
        return {topic: table.to_json() for topic, table in self.by_topic.items()}

    @classmethod
    def from_json(cls, value: Position) -> Catalog:
        """The reverse of `as_json`."""
        try:
            return cls(_table_from_json(topic, fields) for topic, fields in _mapping(value).items())
        except (KeyError, TypeError, ValueError) as error:
            raise AdapterError(
                "position-unknown",
                f"the tables in the position cannot be read: {error!r}",
                fix="use a state directory of its own for each adapter",
            ) from error


def _table_from_json(topic: str, value: Position) -> TopicTable:
    fields = _mapping(value)
    columns: dict[str, Encoded] = {}
    for name, data_type, encoding in _rows(fields["columns"]):
        columns[name] = Encoded(data_type, encoding)
    key = [str(name) for name in _list(fields["key"])]
    key_format = "text" if fields.get("text") else "json"
    return TopicTable.of(
        topic, str(fields["table"]), columns, key, is_closed=bool(fields.get("closed")), key_format=key_format
    )


def _rows(value: Position) -> Iterable[tuple[str, str, str]]:
    for row in _list(value):
        name, data_type, encoding = _list(row)
        yield str(name), str(data_type), str(encoding)


def _mapping(value: Position) -> dict[str, Position]:
    if not isinstance(value, dict):
        raise TypeError(f"an object is needed, not {type(value).__name__}")
    return value


def _list(value: Position) -> list[Position]:
    if not isinstance(value, list):
        raise TypeError(f"a list is needed, not {type(value).__name__}")
    return value
