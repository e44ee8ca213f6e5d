"""The adapter's settings: which tables, where they are, what identifies a row, how often to poll.

In TOML one section per table, `[set.tables.<name>]`; on the command line the same keys with dots,
`--set tables.<name>.<key>=<value>`. Exactly one key names the source: `delta`, `iceberg`, `parquet`, `orc`, `csv`,
`json`, `jdbc` or `query`. Everything is checked here, before anything is opened; an error has the key as it is
spelled in the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

from changesource_sdk import ConfigurationError
from changesource_sdk.toolkit import nearest

Kind = Literal["delta", "iceberg", "parquet", "orc", "csv", "json", "jdbc", "query"]
ReaderChoice = Literal["auto", "deltalake", "spark"]
T = TypeVar("T")
KINDS: tuple[Kind, ...] = get_args(Kind)
DELTA_READERS: tuple[ReaderChoice, ...] = get_args(ReaderChoice)
OTHER_KEYS = ("key", "poll", "group", "options", "change_feed", "full_compare", "delta_reader")
DEFAULT_POLL_S = 1.0
DELTA_POLL_S = 0.2
LONGEST_POLL_S = 86_400.0
FULL_COMPARE_EVERY = 100


@dataclass(frozen=True, slots=True)
class TableSettings:
    """One table. `location` is a path, a name in a catalog, a URL or a query, as `kind` says."""

    name: str
    kind: Kind
    location: str
    key: tuple[str, ...]
    poll: float = DEFAULT_POLL_S
    group: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    change_feed: bool = True
    full_compare: int = FULL_COMPARE_EVERY
    delta_reader: ReaderChoice = "auto"

    @property
    def where(self) -> str:
        """The table as errors name it."""
        return f"table {self.name}"

    @property
    def takes_jobs(self) -> bool:
        """Whether a poll of the table always needs Spark jobs."""
        return self.kind != "delta" or not self.change_feed or self.delta_reader == "spark"

    @property
    def identity(self) -> str:
        """Differs when another table is meant, or other rows of it; options may hold secrets and are left out."""
        said = json.dumps([self.kind, self.location, list(self.key)])
        return hashlib.sha256(said.encode()).hexdigest()[:12]


def read_tables(tables: object, dotted: Mapping[str, object]) -> tuple[TableSettings, ...]:
    """The tables of the TOML sections together with those given by dotted keys."""
    sections = _undotted(_mapping("tables", tables), dotted)
    if not sections:
        raise ConfigurationError(
            "missing-setting",
            "no table is named",
            "tables",
            "write [set.tables.orders], delta = '/lake/orders', key = 'id'; or --set tables.orders.delta=/lake/orders "
            "--set tables.orders.key=id",
        )
    return tuple(_read_table(name, _mapping(f"tables.{name}", section)) for name, section in sections.items())


def _undotted(sections: Mapping[str, object], dotted: Mapping[str, object]) -> dict[str, object]:
    """Sections with `tables.<name>.<key>` and `tables.<name>.options.<option>` put in their place."""
    options = {name: dict(_mapping(f"tables.{name}", section)) for name, section in sections.items()}
    for path, value in dotted.items():
        first, _, rest = path.partition(".")
        before, is_option, option = rest.partition(".options.")
        name, _, key = (before, "", "options") if is_option else rest.rpartition(".")
        if first != "tables" or not name or not key:
            raise ConfigurationError("unknown-setting", f"there is no setting {path!r}", "--set", _dotted_fix(first))
        section = options.setdefault(name, {})
        if is_option:
            section["options"] = {**_mapping(f"tables.{name}.options", section.get("options", {})), option: value}
        else:
            section[key] = value
    return dict(options)


def _dotted_fix(first: str) -> str:
    return f"{nearest(first, ['tables', 'state'])}; a table's keys are written tables.<name>.<key>=<value>"


def _read_table(name: str, section: Mapping[str, object]) -> TableSettings:
    where = f"tables.{name}"
    for key in section:
        if key not in KINDS and key not in OTHER_KEYS:
            hint = nearest(key, [*KINDS, *OTHER_KEYS])
            raise ConfigurationError("unknown-setting", f"unknown key {key!r}", f"{where}.{key}", hint)
    kinds = [kind for kind in KINDS if kind in section]
    if len(kinds) != 1:
        said = "no source" if not kinds else f"{len(kinds)} sources ({', '.join(kinds)})"
        raise ConfigurationError("bad-setting", f"the table has {said}", where, f"give one of {', '.join(KINDS)}")
    return TableSettings(
        name=name,
        kind=kinds[0],
        location=_text(f"{where}.{kinds[0]}", section[kinds[0]]),
        key=_names(f"{where}.key", section.get("key", "")),
        poll=_number(f"{where}.poll", section.get("poll", _usual_poll(kinds[0])), 0.01, LONGEST_POLL_S),
        group=_text(f"{where}.group", section["group"]) if "group" in section else "",
        options={k: str(v) for k, v in _mapping(f"{where}.options", section.get("options", {})).items()},
        change_feed=_truth(f"{where}.change_feed", section.get("change_feed", True)),
        full_compare=int(_number(f"{where}.full_compare", section.get("full_compare", FULL_COMPARE_EVERY), 0, 1e9)),
        delta_reader=_delta_reader(f"{where}.delta_reader", section.get("delta_reader", "auto")),
    )


def _usual_poll(kind: Kind) -> float:
    """Looking for a new version of a Delta table costs next to nothing."""
    return DELTA_POLL_S if kind == "delta" else DEFAULT_POLL_S


def _mapping(where: str, value: object) -> Mapping[str, object]:
    if isinstance(value, str) and value.startswith("{"):
        return _checked(where, value, json.loads, "give a TOML table or a JSON object")
    if not isinstance(value, Mapping):
        raise _bad(where, value, f"write [set.{where}], or {where}.<key>=<value>")
    return value


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _bad(where, value, "give a text")
    return value.strip()


def _names(where: str, value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    names = tuple(name.strip() for name in parts if isinstance(name, str) and name.strip())
    if not names or len(set(names)) != len(names):
        raise _bad(where, value, "name the columns that identify a row, each once: key = 'id', or 'region, id'")
    return names


def _number(where: str, value: object, least: float, most: float) -> float:
    fix = f"give a number from {least:g} to {most:g}"
    number = _checked(where, value, lambda value: float(str(value)), fix)
    if not least <= number <= most:
        raise _bad(where, value, fix)
    return number


def _truth(where: str, value: object) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise _bad(where, value, "give true or false")
    return str(value).lower() == "true"


def _delta_reader(where: str, value: object) -> ReaderChoice:
    for name in DELTA_READERS:
        if value == name:
            return name
    raise _bad(where, value, f"give one of {', '.join(DELTA_READERS)}")


def _checked(where: str, value: object, read: Callable[[str], T], fix: str) -> T:
    try:
        return read(str(value))
    except ValueError:
        raise _bad(where, value, fix) from None


def _bad(where: str, value: object, fix: str) -> ConfigurationError:
    return ConfigurationError("bad-setting", f"the setting cannot be {value!r}", where, fix)
