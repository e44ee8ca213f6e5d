"""Settings of `changesource serve`: defaults, then a TOML file, then `CHANGESOURCE_*` variables, then flags.

Pure: the caller hands in the file's text, the environment and the flags, and gets back one `ServeConfig` together
with the origin of every value. A key nobody knows is an error that names the nearest one; a value of the wrong kind
is an error that names where it was written. Secrets are marked in the field and never shown by `describe`; their values
are given to `protocol.redaction`, so that no other output shows them either.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.policies.compaction import problem
from changesource_sdk.policies.origins import origin_problem
from protocol.redaction import hide, hide_setting, is_secret_name, redact, redact_value, secrets_in
from service_kit.suggestions import nearest

ENVIRONMENT_PREFIX = "CHANGESOURCE_"
SETTING_PREFIX = ENVIRONMENT_PREFIX + "SET_"
#: Beginnings of variables with the prefix that are read elsewhere: the file's own path, the cache, the test kit's seed.
NOT_OPTIONS = ("CHANGESOURCE_CONFIG", "CHANGESOURCE_CACHE_", "CHANGESOURCE_SEED")


def about(text: str, *, secret: bool = False, check: Callable[[Any], str | None] | None = None) -> dict[str, object]:
    """What is known of a setting: its help text, whether it is secret, and what makes a value wrong."""
    return {"help": text, "secret": secret, "check": check}


def _positive(value: float) -> str | None:
    return None if value > 0 else "must be greater than 0"


def _not_negative(value: float) -> str | None:
    return None if value >= 0 else "must not be negative"


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


def _address(value: str) -> str | None:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        return "must be HOST:PORT, for example 127.0.0.1:4810 (port 0 picks a free one)"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Every setting of one endpoint and its pipeline. Invariant: each value has passed its field's check."""

    adapter: str = field(default="", metadata=about("adapter to run: an installed name, or module:Class"))
    settings: Mapping[str, object] = field(
        default_factory=dict, metadata=about("settings of the adapter, as given by --set key=value")
    )
    listen: str = field(
        default="127.0.0.1:4810", metadata=about("address of the stream, health, metrics and status", check=_address)
    )
    state: Path = field(
        default=Path("changesource-state"), metadata=about("directory of the change log and the snapshots")
    )
    log: str | None = field(
        default=None,
        metadata=about("where the change log is kept: postgresql://…, else in the state directory", secret=True),
    )
    log_schema: str = field(
        default="changesource", metadata=about("schema of this change log, one of many in its database")
    )
    spool: str | None = field(
        default=None,
        metadata=about("directory or URI (s3://…) of the snapshots, for all hosts; else in the state directory"),
    )
    role: str = field(
        default="all",
        metadata=about(
            "what runs here: the pipeline, the endpoint, or both (all)", check=_one_of("all", "endpoint", "pipeline")
        ),
    )
    api_key: str | None = field(default=None, metadata=about("key a consumer must present", secret=True))
    api_key_file: Path | None = field(
        default=None, metadata=about("file of keys, any of which a consumer must present: name:key lines, read again")
    )
    tls_cert: Path | None = field(default=None, metadata=about("PEM file with the server's certificate chain"))
    tls_key: Path | None = field(default=None, metadata=about("PEM file with the certificate's private key"))
    tls_client_ca: Path | None = field(
        default=None, metadata=about("PEM file of the authorities that sign the certificates consumers must present")
    )
    allowed_origins: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "origins of web pages that may send requests, with commas between them; * for any", check=origin_problem
        ),
    )
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata=about("names, besides localhost, under which /statusz and /metrics may be asked for; * for any"),
    )
    connections_per_address: int = field(
        default=1000, metadata=about("connections one address may have open; 0 for any number", check=_not_negative)
    )
    connection_rate_per_address: float = field(
        default=1000.0, metadata=about("new connections per second from one address; 0 for any", check=_not_negative)
    )
    permissions: str = field(
        default="null", metadata=about("permissions row: null, allow-all, or the path of a JSON file")
    )
    runner: str = field(
        default="spark",
        metadata=about("what runs the pipeline: spark, or inline (no Java)", check=_one_of("spark", "inline")),
    )
    master: str = field(
        default="local[*]", metadata=about("Spark master: local[N], spark://host:port, yarn or k8s://url")
    )
    conf: Mapping[str, object] = field(
        default_factory=dict, metadata=about("Spark settings, as given by --conf key=value")
    )
    mapping: Mapping[str, object] = field(
        default_factory=dict, metadata=about("how tables appear to consumers, one TOML table each: [mapping.issue]")
    )
    mappings: str = field(
        default="", metadata=about("how tables appear to consumers, declared in Python: module:NAME of a dict")
    )
    ledger: Path | None = field(
        default=None,
        metadata=about("file in which an application confirms mutations, for a store that cannot hold them"),
    )
    compression: bool = field(default=False, metadata=about("offer permessage-deflate (costs CPU on both sides)"))
    log_format: str = field(
        default="text", metadata=about("text for people, json for machines", check=_one_of("text", "json"))
    )
    log_level: str = field(
        default="info",
        metadata=about("least severe event to print", check=_one_of("debug", "info", "warning", "error")),
    )
    status_interval: float = field(
        default=10.0, metadata=about("seconds between status messages on an idle stream", check=_positive)
    )
    ping_interval: float = field(default=20.0, metadata=about("seconds between pings to a consumer", check=_positive))
    dead_after: float = field(
        default=120.0,
        metadata=about("seconds without reading, message or pong before a consumer is dropped", check=_positive),
    )
    tail_bytes: int = field(
        default=32 * 1024 * 1024, metadata=about("bytes of recent transactions shared in memory", check=_positive)
    )
    grace: float = field(
        default=10.0, metadata=about("seconds to reach a transaction boundary when stopping", check=_positive)
    )
    prune_interval: float = field(
        default=60.0, metadata=about("seconds between looks at what the log may forget", check=_positive)
    )
    subscriber_expiry: float = field(
        default=7 * 86400.0, metadata=about("seconds an absent consumer still holds the log back", check=_positive)
    )
    compact_after: str = field(
        default="256MB",
        metadata=about(
            "log after the newest snapshot that makes a new one due: 256MB, 100000tx, both, or never", check=problem
        ),
    )

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class Effective:
    """A configuration and where each of its values came from. Invariant: `origins` has every field of `config`."""

    config: ServeConfig
    origins: Mapping[str, str]

    def describe(self) -> list[tuple[str, str, str]]:
        """(name, value to show, origin) of every setting, in declaration order; secrets are masked."""
        return [(f.name, self.shown(f.name), self.origins[f.name]) for f in fields(ServeConfig)]

    def as_json(self) -> dict[str, dict[str, object]]:
        """The same for machines: values in their own type, secrets masked."""
        return {name: {"value": self._plain(name), "origin": self.origins[name]} for name in _FIELDS}

    def _plain(self, name: str) -> object:
        value = getattr(self.config, name)
        if name in TABLES:
            return {key: _masked(key, item) for key, item in value.items()}
        if isinstance(value, tuple):
            return list(value)
        if isinstance(value, Path):
            return str(value)
        return self.shown(name) if _is_secret(name, value) else redact_value(value)

    def shown(self, name: str) -> str:
        """A value as text for people."""
        value = getattr(self.config, name)
        if _is_secret(name, value):
            return "(set, not shown)"
        if name in TABLES:
            return ", ".join(f"{key}={_masked(key, item)}" for key, item in value.items()) or "(none)"
        if isinstance(value, tuple):
            return ", ".join(value) or "(none)"
        return "(unset)" if value is None or value == "" else redact(str(value))


_FIELDS = {f.name: f for f in fields(ServeConfig)}
#: Fields that hold key=value pairs, with the name of their table in the TOML file and of their flag.
TABLES: Mapping[str, str] = {"settings": "set", "conf": "conf", "mapping": "mapping"}


def _is_secret(name: str, value: object) -> bool:
    return value is not None and bool(_FIELDS[name].metadata["secret"])


def _masked(key: str, value: object) -> object:
    return "(not shown)" if is_secret_name(key) else redact_value(value)


def help_text(name: str) -> str:
    """The one line that says what a setting does."""
    return str(_FIELDS[name].metadata["help"])


def load(
    *,
    toml: str | None = None,
    toml_name: str = "the configuration file",
    environment: Mapping[str, str],
    flags: Mapping[str, object],
) -> Effective:
    """Merge the four sources. A flag of None was not given. Raises `ConfigurationError`."""
    values: dict[str, object] = {}
    origins = dict.fromkeys(_FIELDS, "default")
    tables: dict[str, dict[str, object]] = {name: {} for name in TABLES}
    sources = (
        (_from_toml(toml, toml_name), lambda name: toml_name),
        (_from_environment(environment), _variable),
        ({k: v for k, v in flags.items() if v is not None}, _flag),
    )
    for given, origin in sources:
        for table, pairs in tables.items():
            added = _table_of(table, given.pop(table, {}), origin(table))
            pairs.update(added)
            origins[table] = origin(table) if added else origins[table]
        for name, raw in given.items():
            values[name] = _convert(name, raw, origin(name))
            origins[name] = origin(name)
    for name, value in (values | tables).items():
        _hide(name, value)
    config = ServeConfig(**values, **tables)  # type: ignore[arg-type]
    _check_together(config)
    return Effective(config, origins)


def _hide(name: str, value: object) -> None:
    """Have a setting's secrets masked wherever they are printed."""
    if _is_secret(name, value) and isinstance(value, str) and not secrets_in(value):
        hide(value)
    hide_setting(name, value)


def parse_pairs(pairs: list[str], flag: str = "--set") -> dict[str, object]:
    """`key=value` words of the command line; values stay text, whoever gets them converts."""
    parsed: dict[str, object] = {}
    for number, pair in enumerate(pairs, 1):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # Not shown: it may be a secret whose name was forgotten.
            message = f"{flag} number {number} is not key=value"
            raise ConfigurationError("bad-value", message, where=flag, fix=f"write it as {flag} name=value")
        parsed[key.strip()] = value
        hide_setting(key.strip(), value)
    return parsed


def _from_toml(text: str | None, name: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError("bad-toml", f"not valid TOML: {error}", where=name, fix="correct that line") from None
    if "set" in document:
        document["settings"] = document.pop("set")
    for key in document:
        if key not in _FIELDS:
            known = [TABLES.get(known, known) for known in _FIELDS]
            raise ConfigurationError("unknown-key", f"unknown key {key!r}", where=name, fix=nearest(key, known))
    return document


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    settings: dict[str, str] = {}
    for variable, value in sorted(environment.items()):
        if variable.startswith(SETTING_PREFIX):
            settings[variable.removeprefix(SETTING_PREFIX).lower()] = value
        elif variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith(NOT_OPTIONS):
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            if name not in _FIELDS or name in TABLES:
                known = [_variable(known) for known in _FIELDS if known not in TABLES]
                raise ConfigurationError(
                    "unknown-key", f"unknown variable {variable}", "the environment", nearest(variable, known)
                )
            given[name] = value
    return given | {"settings": settings}


def _variable(name: str) -> str:
    return f"{ENVIRONMENT_PREFIX}{'SET_*' if name == 'settings' else name.upper()}"


def _flag(name: str) -> str:
    return {"settings": "--set", "adapter": "the command line"}.get(name, "--" + name.replace("_", "-"))


def _table_of(name: str, given: object, origin: str) -> dict[str, object]:
    table = TABLES[name]
    if not isinstance(given, Mapping):
        fix = f'write [{table}], then lines such as name = "value"'
        raise ConfigurationError("bad-value", f"{table!r} must be a table", origin, fix)
    return dict(given)


_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def _convert(name: str, raw: object, origin: str) -> object:
    """The value in the field's own type, checked."""
    declared = str(_FIELDS[name].type)
    try:
        value = _CONVERTERS[declared.removesuffix(" | None")](raw)
    except (ValueError, TypeError):
        wanted = {"float": "a number", "int": "a whole number", "bool": "true or false"}.get(declared, "text")
        shown = "the value" if _FIELDS[name].metadata["secret"] else repr(raw)
        raise ConfigurationError(
            "bad-value", f"{name} must be {wanted}, not {shown}", origin, _other_value(name)
        ) from None
    check = _FIELDS[name].metadata["check"]
    if check is not None and (problem := check(value)):
        shown = "" if _FIELDS[name].metadata["secret"] else f"; it is {value!r}"
        raise ConfigurationError("bad-value", f"{name} {problem}{shown}", origin, _other_value(name))
    return value


def _other_value(name: str) -> str:
    return f"give another value; {name} is: {help_text(name)}"


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise TypeError
    return raw


def _number(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise TypeError
    return float(raw)


def _whole(raw: object) -> int:
    number = _number(raw)
    if number != int(number):
        raise ValueError
    return int(number)


def _switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    word = _text(raw).lower()
    if word not in _TRUE | _FALSE:
        raise ValueError
    return word in _TRUE


def _words(raw: object) -> tuple[str, ...]:
    """A list, or a text with commas."""
    items = raw if isinstance(raw, list | tuple) else _text(raw).split(",")
    return tuple(word for item in items if (word := _text(item).strip()))


def _path(raw: object) -> Path:
    return raw if isinstance(raw, Path) else Path(_text(raw))


_CONVERTERS: Mapping[str, Callable[[object], object]] = {
    "str": _text,
    "float": _number,
    "int": _whole,
    "bool": _switch,
    "Path": _path,
    "tuple[str, ...]": _words,
}


def _check_together(config: ServeConfig) -> None:
    if (config.tls_cert is None) != (config.tls_key is None):
        raise ConfigurationError(
            "bad-tls", "TLS needs both a certificate and its key", "tls_cert, tls_key", "give both, or neither"
        )
    if config.tls_client_ca is not None and config.tls_cert is None:
        raise ConfigurationError(
            "bad-tls", "client certificates need TLS", "tls_client_ca", "give --tls-cert and --tls-key too"
        )
