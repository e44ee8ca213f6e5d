"""The settings of the adapter: `changesource serve kafka --set bootstrap=… --set topics=… --set format=…`.

| setting | meaning |
|---|---|
| `bootstrap` | brokers, as `host:9092,host2:9092` |
| `topics` | topics to follow: names or globs, comma-separated |
| `format` | `debezium`, or `upsert` for topics of keys and rows where a tombstone deletes |
| `decoder` | `module:Class` that decodes bytes (`records.decoding.Decoder`); JSON without it |
| `transaction_topic` | Debezium's topic of transaction boundaries; transactions are then whole as in the source |
| `transactions` | without that topic: `batch`, what one fetch brings is one transaction, or `record` |
| `poison` | a record that cannot be read: `stop`, or `set-aside` in the file `dead_letters` |
| `dead_letters` | that file; one JSON object per line |
| `stall_after` | seconds after which there is a warning about an incomplete transaction, which delays the stream |
| `open_limit` | how many transactions may be incomplete at a time; one more is an error |
| `order_by` | what orders the records of a key that is in several partitions (`key_order`) |
| `unordered_keys` | a key without a certainly newest record: `refuse`, or `set-aside`, which leaves its row out |
| `key_mismatch` | a record key that is not its row's: `refuse`, `set-aside`, or `value`, which ignores it |
| `group` | the consumer group whose offsets are committed for lag tools; `""` for none |
| `tables` | per table `TABLE_OPTIONS`: TOML `[set.tables.NAME]`, or a TOML file |
| `security_*`, `sasl_*`, `ssl_*` | passed to kafka-python unchanged |
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from kafka import KafkaConsumer

from adapters.kafka.key_order import COLUMN, WORDS
from adapters.kafka.types import Encoded, reader
from changesource_sdk import ConfigurationError
from changesource_sdk.toolkit import nearest

Format: TypeAlias = Literal["debezium", "upsert"]
Grouping: TypeAlias = Literal["batch", "record"]
Poison: TypeAlias = Literal["stop", "set-aside"]
KeyFormat: TypeAlias = Literal["json", "text"]
Unordered: TypeAlias = Literal["refuse", "set-aside"]
KeyMismatch: TypeAlias = Literal["refuse", "set-aside", "value"]

PASSED_ON = ("security_", "sasl_", "ssl_")
TABLE_OPTIONS = ("topic", "key", "columns", "key_format", "collection", "order_by")
_GLOB = re.compile(r"[*?\[]")
_NOT_IN_TOPICS = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The settings of one table. Without `columns`, the records define them."""

    name: str
    topic: str = ""
    key: tuple[str, ...] = ()
    columns: Mapping[str, Encoded] = field(default_factory=dict)
    key_format: KeyFormat = "json"
    collection: str = ""
    order_by: str = ""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Well-formed settings. Whether the brokers have what they name is checked by `checks`."""

    bootstrap: tuple[str, ...]
    topics: tuple[str, ...]
    format: Format
    decoder: str = ""
    transaction_topic: str = ""
    transactions: Grouping = "batch"
    poison: Poison = "stop"
    dead_letters: str = ""
    stall_after: float = 30.0
    open_limit: int = 50_000
    order_by: str = ""
    unordered_keys: Unordered = "refuse"
    key_mismatch: KeyMismatch = "refuse"
    group: str = "changesource"
    tables: Mapping[str, TableOptions] = field(default_factory=dict)
    client: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        bootstrap: str | Sequence[str],
        topics: str | Sequence[str],
        format: str = "debezium",
        decoder: str = "",
        transaction_topic: str = "",
        transactions: str = "batch",
        poison: str = "stop",
        dead_letters: str = "",
        stall_after: float | str = 30.0,
        open_limit: int | str = 50_000,
        order_by: str = "",
        unordered_keys: str = "refuse",
        key_mismatch: str = "refuse",
        group: str = "changesource",
        tables: str | Mapping[str, object] = "",
        **client: object,
    ) -> KafkaSettings:
        """Raises `ConfigurationError` for a value that is not allowed; `client` are options of kafka-python."""
        _one_of("poison", poison, get_args(Poison))
        _one_of("unordered_keys", unordered_keys, get_args(Unordered))
        _one_of("key_mismatch", key_mismatch, get_args(KeyMismatch))
        for setting, value, other in (("poison", poison, "stop"), ("key_mismatch", key_mismatch, "refuse")):
            if value == "set-aside" and not dead_letters:
                fix = f"add --set dead_letters=PATH, a file that keeps them, or use {setting}={other}"
                raise _bad(setting, value, fix, "needs a file to set records aside in")
        _one_of("format", format, get_args(Format))
        if transaction_topic and format != "debezium":
            raise _bad("transaction_topic", transaction_topic, "use it with format=debezium", "belongs to Debezium")
        _one_of("transactions", transactions, get_args(Grouping))
        return cls(
            _names("bootstrap", bootstrap, "give brokers as host:9092"),
            _names("topics", topics, "give names or globs of topics"),
            cast(Format, format),
            decoder,
            transaction_topic,
            cast(Grouping, transactions),
            cast(Poison, poison),
            dead_letters,
            _seconds("stall_after", stall_after),
            _count("open_limit", open_limit),
            _order("order_by", order_by, format),
            cast(Unordered, unordered_keys),
            cast(KeyMismatch, key_mismatch),
            group,
            _tables(tables, format),
            _client(client),
        )

    @property
    def where(self) -> str:
        """The brokers, for messages."""
        return ", ".join(self.bootstrap)

    @property
    def named_topics(self) -> tuple[str, ...]:
        """Topics that must exist: those named without a glob."""
        return tuple(name for name in self.topics if not _GLOB.search(name))

    def follows(self, topic: str) -> bool:
        """Whether the setting `topics` selects a topic, and it is not the transaction topic."""
        if topic == self.transaction_topic or topic.startswith("__"):
            return False
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)

    def options(self, topic: str) -> TableOptions:
        """The settings of a topic's table; by default its name is the part of the topic after the last dot."""
        options = next((options for options in self.tables.values() if options.topic == topic), None)
        name = topic.rpartition(".")[2]
        if options is None and name in self.tables and not self.tables[name].topic:
            options = self.tables[name]
        return options or TableOptions(name, topic)

    def order_of(self, topic: str) -> str:
        """What orders the records of a key over the partitions of a topic."""
        return self.options(topic).order_by or self.order_by

    def ordering(self, topic: str) -> str:
        """The settings that decide which row a key in several partitions has, as a text in positions."""
        return f"{self.order_of(topic)}/{self.unordered_keys}"

    def collections(self, topics: Iterable[str]) -> dict[str, str]:
        """The followed topics by the collections that Debezium counts changes by.

        A topic is called as its collection, after the prefix that the transaction topic has, too (`shop.transaction`
        and `shop.public.issue`), unless the user names its collection. Nothing is guessed: a collection taken for one
        that is not followed would tear transactions.
        """
        prefix = self.transaction_topic.rpartition(".")[0]
        by_collection: dict[str, str] = {}
        for topic in topics:
            collection = self.options(topic).collection
            if not collection and not (prefix and topic.startswith(f"{prefix}.")):
                raise ConfigurationError(
                    "collection-unknown",
                    f"it is not known which collection of the transaction topic the topic {topic} has",
                    where=f"topic {topic}",
                    fix=f'name it: [set.tables.{topic.rpartition(".")[2]}] with collection = "schema.table"',
                )
            by_collection[collection_topic(collection) or topic.removeprefix(f"{prefix}.")] = topic
        return by_collection


def collection_topic(collection: str) -> str:
    """A collection as it is spelled in the name of its topic."""
    return _NOT_IN_TOPICS.sub("_", collection)


def _tables(value: str | Mapping[str, object], format: str) -> dict[str, TableOptions]:
    if isinstance(value, str):
        value = _read_tables(value) if value else {}
    return {name: _table(name, options, format) for name, options in value.items()}


def _read_tables(path: str) -> Mapping[str, object]:
    try:
        content = tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise _bad("tables", path, "give the path of a TOML file with one table per table", str(error)) from None
    tables = content.get("tables", content)
    return tables if isinstance(tables, Mapping) else {}


def _table(name: str, value: object, format: str) -> TableOptions:
    where = f"tables.{name}"
    if not isinstance(value, Mapping):
        raise _bad(where, value, f'write [set.{where}], then lines such as key = ["id"]')
    for option in value:
        if option not in TABLE_OPTIONS:
            raise ConfigurationError(
                "unknown-setting",
                f"a table has no option {option!r}",
                where,
                nearest(str(option), list(TABLE_OPTIONS)),
            )
    key_format = str(value.get("key_format", "json"))
    _one_of(f"{where}.key_format", key_format, get_args(KeyFormat))
    key = value.get("key", ())
    columns = value.get("columns", {})
    if not isinstance(columns, Mapping):
        raise _bad(f"{where}.columns", columns, 'write columns = { id = "int8", title = "text" }')
    return TableOptions(
        name,
        str(value.get("topic", "")),
        (key,) if isinstance(key, str) else tuple(map(str, key)),
        {str(column): _encoded(f"{where}.columns.{column}", kind) for column, kind in columns.items()},
        cast(KeyFormat, key_format),
        str(value.get("collection", "")),
        _order(f"{where}.order_by", str(value.get("order_by", "")), format),
    )


def _order(setting: str, value: str, format: str) -> str:
    if value == "source" and format != "debezium":
        raise _bad(
            setting, value, "use it with format=debezium, or `timestamp` or `column:NAME`", "belongs to Debezium"
        )
    if value and value not in WORDS and not value.startswith(COLUMN):
        raise _bad(setting, value, f"use {', '.join(f'`{word}`' for word in WORDS)} or `{COLUMN}NAME`")
    return value


def _encoded(where: str, value: object) -> Encoded:
    match value:
        case str():
            return Encoded(value)
        case {"type": str(data_type), **rest} if rest.keys() <= {"as"}:
            encoding = str(rest.get("as", ""))
            try:
                reader(data_type, encoding)
            except ValueError as error:
                raise _bad(where, value, "correct the word after `as`", str(error)) from None
            return Encoded(data_type, encoding)
    raise _bad(where, value, 'write a type, "timestamptz", or { type = "timestamptz", as = "micros" }')


def _client(client: Mapping[str, object]) -> dict[str, object]:
    """Options of the client, in the types it wants."""
    known = {name: value for name, value in KafkaConsumer.DEFAULT_CONFIG.items() if name.startswith(PASSED_ON)}
    passed: dict[str, object] = {}
    for name, value in client.items():
        if name not in known:
            own = [name for name in KafkaSettings.__dataclass_fields__ if name != "client"]
            raise ConfigurationError(
                "unknown-setting", f"KafkaAdapter has no setting {name!r}", "--set", nearest(name, [*own, *known])
            )
        is_switch = isinstance(known[name], bool) and isinstance(value, str)
        passed[name] = str(value).lower() in ("true", "1", "yes", "on") if is_switch else value
    return passed


def _names(setting: str, value: str | Sequence[str], fix: str) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    names = tuple(dict.fromkeys(name.strip() for name in parts if name.strip()))
    if not names:
        raise _bad(setting, value, fix)
    return names


def _seconds(setting: str, value: float | str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise _bad(setting, value, "give seconds above 0")
    return seconds


def _count(setting: str, value: int | str) -> int:
    number = int(value) if str(value).isdecimal() else 0
    if number < 1:
        raise _bad(setting, value, "give a number above 0")
    return number


def _one_of(setting: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise _bad(setting, value, f"use {' or '.join(f'`{word}`' for word in allowed)}")


def _bad(setting: str, value: object, fix: str, why: str = "") -> ConfigurationError:
    reason = f": {why}" if why else ""
    return ConfigurationError("bad-setting", f"the setting `{setting}` cannot be {value!r}{reason}", setting, fix)
