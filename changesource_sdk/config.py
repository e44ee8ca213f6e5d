"""Settings of `changesource serve`: defaults, then a TOML file, then `CHANGESOURCE_*` variables, then flags.

Pure: the caller hands in the file's text, the environment and the flags, and gets back one `ServeConfig` together
with the origin of every value. An unknown key is an error that names the nearest one; a value of the wrong kind
is an error that names where it was written. Secrets are marked in the field and never shown by `describe`; their values
are given to `protocol.redaction`, so that no other output shows them either.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.policies.bad_values import POLICIES
from changesource_sdk.policies.compaction import problem
from changesource_sdk.policies.origins import origin_problem
from changesource_sdk.policies.seeding import interval_problem
from changesource_sdk.source_config import SourceConfig, read_sources, underscored, with_settings
from protocol.redaction import hide, hide_setting, is_secret_name, redact, redact_value, secrets_in
from service_kit import settings
from service_kit.settings import BadValue, Reader, SettingsSource, checked, number, path, setting, text, whole, words
from service_kit.suggestions import nearest

ENVIRONMENT_PREFIX = "CHANGESOURCE_"
SETTING_PREFIX = ENVIRONMENT_PREFIX + "SET_"
#: Beginnings of variables with the prefix that are read elsewhere: the file's own path, the cache, the test kit's seed.
NOT_OPTIONS = ("CHANGESOURCE_CONFIG", "CHANGESOURCE_CACHE_")
_TEST_SEED = "CHANGESOURCE_SEED"
_SWITCHES = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


def _positive(value: float) -> str | None:
    return None if value > 0 else "must be greater than 0"


def _not_negative(value: float) -> str | None:
    return None if value >= 0 else "must not be negative"


def _one_of(*allowed: str) -> Reader:
    return checked(text, lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}")


def _switch(raw: object) -> bool:
    value = raw if isinstance(raw, bool) else _SWITCHES.get(raw.lower() if isinstance(raw, str) else "")
    if value is None:
        raise BadValue("true or false")
    return value


def _table(name: str) -> Reader:
    def read(raw: object) -> dict[str, object]:
        if not isinstance(raw, Mapping):
            fix = f'write [{name}], then lines such as name = "value"'
            raise BadValue(problem=f"{name!r} must be a table", fix=fix)
        return dict(raw)

    return read


def _address(value: str) -> str | None:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        return "must be HOST:PORT, for example 127.0.0.1:4810 (port 0 picks a free one)"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Every setting of one endpoint and its pipeline. Invariant: each value has passed its field's check."""

    adapter: str = setting("", text, "adapter to run: an installed name, or module:Class")
    settings: Mapping[str, object] = setting({}, _table("set"), "settings of the adapter, as given by --set key=value")
    sources: Mapping[str, SourceConfig] = setting(
        {}, read_sources, "several upstreams instead of one adapter, one TOML table each: [sources.crm]"
    )
    listen: str = setting(
        "127.0.0.1:4810", checked(text, _address), "address of the stream, health, metrics and status"
    )
    state: Path = setting(Path("changesource-state"), path, "directory of the change log and the snapshots")
    log: str | None = setting(
        None, text, "where the change log is kept: postgresql://…, else in the state directory", secret=True
    )
    log_schema: str = setting("changesource", text, "schema of this change log, one of many in its database")
    spool: str | None = setting(
        None, text, "directory or URI (s3://…) of the snapshots, for all hosts; else in the state directory"
    )
    role: str = setting(
        "all", _one_of("all", "endpoint", "pipeline"), "what runs here: the pipeline, the endpoint, or both (all)"
    )
    api_key: str | None = setting(None, text, "key a consumer must present", secret=True)
    api_key_file: Path | None = setting(
        None,
        path,
        "file of keys: a consumer must present one of them. name:key lines, read again when the file changes",
    )
    tls_cert: Path | None = setting(None, path, "PEM file with the server's certificate chain")
    tls_key: Path | None = setting(None, path, "PEM file with the certificate's private key")
    tls_client_ca: Path | None = setting(
        None, path, "PEM file of the authorities that sign the certificates consumers must present"
    )
    allowed_origins: tuple[str, ...] = setting(
        (),
        checked(words, origin_problem),
        "origins of web pages that may send requests, with commas between them; * for any",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (), words, "host names, in addition to localhost, under which /statusz and /metrics answer; * for any"
    )
    connections_per_address: int = setting(
        1000, checked(whole, _not_negative), "connections one address may have open; 0 for any number"
    )
    connection_rate_per_address: float = setting(
        1000.0, checked(number, _not_negative), "new connections per second from one address; 0 for any"
    )
    permissions: str = setting("null", text, "permissions row: null, allow-all, or the path of a JSON file")
    runner: str = setting("spark", _one_of("spark", "inline"), "what runs the pipeline: spark, or inline (no Java)")
    master: str = setting("local[*]", text, "Spark master: local[N], spark://host:port, yarn or k8s://url")
    conf: Mapping[str, object] = setting({}, _table("conf"), "Spark settings, as given by --conf key=value")
    mapping: Mapping[str, object] = setting(
        {}, _table("mapping"), "how tables appear to consumers, one TOML table each: [mapping.issue]"
    )
    mappings: str = setting("", text, "how tables appear to consumers, declared in Python: module:NAME of a dict")
    ledger: Path | None = setting(
        None, path, "file in which an application confirms mutations, for an upstream that cannot hold them"
    )
    on_bad_value: str | None = setting(
        None,
        _one_of(*POLICIES),
        "what is done with a row that no consumer can hold: stop (default), dead-letter (leave it out) or null",
    )
    compression: bool = setting(False, _switch, "offer permessage-deflate (costs CPU on both sides)")
    log_format: str = setting("text", _one_of("text", "json"), "text for people, json for machines")
    log_level: str = setting("info", _one_of("debug", "info", "warning", "error"), "least severe event to print")
    status_interval: float = setting(
        10.0, checked(number, _positive), "seconds between status messages on an idle stream"
    )
    ping_interval: float = setting(20.0, checked(number, _positive), "seconds between pings to a consumer")
    dead_after: float = setting(
        120.0, checked(number, _positive), "seconds without reading, message or pong before a consumer is dropped"
    )
    tail_bytes: int = setting(
        32 * 1024 * 1024, checked(whole, _positive), "bytes of recent transactions shared in memory"
    )
    grace: float = setting(10.0, checked(number, _positive), "seconds to reach a transaction boundary when stopping")
    prune_interval: float = setting(
        60.0, checked(number, _positive), "seconds between two checks of what can be pruned from the log"
    )
    subscriber_expiry: float = setting(
        7 * 86400.0, checked(number, _positive), "seconds an absent consumer still holds the log back"
    )
    compact_after: str = setting(
        "256MB",
        checked(text, problem),
        "log after the newest snapshot that makes a new one due: 256MB, 100000tx, both, or never",
    )

    seed_every: str = setting(
        "never",
        checked(text, interval_problem),
        "how often to make a seed, a replica file for caches: 30m, 6h, 1d, never",
    )
    seed_to: str | None = setting(None, text, "directory or URI (s3://…) of the seeds, for fetch-seed")
    seed_keep: int = setting(2, checked(whole, _positive), "seeds that are kept there; older ones are deleted")
    seed_app_id: str = setting("zero", text, "ZERO_APP_ID of the caches that start from the seeds")
    seed_publications: tuple[str, ...] = setting((), words, "ZERO_APP_PUBLICATIONS of those caches")

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
        return [(f.name, self.shown(f.name), self.origins[f.name]) for f in _FIELDS.values()]

    def as_json(self) -> dict[str, dict[str, object]]:
        """The same for machines: values in their own type, secrets masked."""
        return {name: {"value": self._plain(name), "origin": self.origins[name]} for name in _FIELDS}

    def _plain(self, name: str) -> object:
        value = getattr(self.config, name)
        if name == "sources":
            return {key: redact_value(asdict(item)) for key, item in value.items()}
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
        if name == "sources":
            return ", ".join(f"{key}={_shown_source(item)}" for key, item in value.items()) or "(none)"
        if name in TABLES:
            return ", ".join(f"{key}={_masked(key, item)}" for key, item in value.items()) or "(none)"
        if isinstance(value, tuple):
            return ", ".join(value) or "(none)"
        return "(unset)" if value is None or value == "" else redact(str(value))


_FIELDS = settings.declared(ServeConfig)
#: Fields that hold key=value pairs, with the name of their table in the TOML file and of their flag.
#: Secrets that may be in a file of their own. `api_key_file` is a setting by itself: a file of several keys.
SECRETS_IN_FILES = ("log",)
TABLES: Mapping[str, str] = {"settings": "set", "conf": "conf", "mapping": "mapping", "sources": "sources"}


def _is_secret(name: str, value: object) -> bool:
    return value is not None and bool(_FIELDS[name].metadata["secret"])


def _shown_source(source: SourceConfig) -> str:
    return source.adapter + (f" (on_bad_value={source.on_bad_value})" if source.on_bad_value else "")


def _masked(key: str, value: object) -> object:
    return "(not shown)" if is_secret_name(key) else redact_value(value)


def help_text(name: str) -> str:
    """The one line that says what a setting does."""
    return str(_FIELDS[name].metadata["about"])


def load(
    *,
    toml: str | None = None,
    toml_name: str = "the configuration file",
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    read_file: Callable[[str], str] = lambda path: Path(path).read_text(),
) -> Effective:
    """Merge the four sources. A flag of None was not given. Raises `ConfigurationError`.

    A secret may be in a file that its key with `_file`, or its variable with `_FILE`, names; `read_file` reads it.
    """
    environment = settings.secret_files(environment, map(_variable, SECRETS_IN_FILES), read_file, _bad_file)
    sources = (
        SettingsSource(_from_toml(toml, toml_name, read_file), lambda name: toml_name),
        *_from_environment(environment),
        SettingsSource({name: raw for name, raw in flags.items() if raw is not None}, _flag),
    )
    values, origins = settings.load(ServeConfig, sources, _bad_value)
    for name, value in values.items():
        if _is_secret(name, value) and isinstance(value, str) and not secrets_in(value):
            hide(value)
    config = ServeConfig(**values)
    _check_together(config)
    if config.sources:
        named = with_settings(config.sources, config.settings, origins["settings"])
        config = replace(config, sources=named, settings={})
    return Effective(config, origins)


def parse_pairs(pairs: list[str], flag: str = "--set") -> dict[str, object]:
    """`key=value` words of the command line; values stay text, and the receiver converts them."""
    parsed: dict[str, object] = {}
    for ordinal, pair in enumerate(pairs, 1):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # Not shown: it may be a secret whose name was forgotten.
            message = f"{flag} number {ordinal} is not key=value"
            raise ConfigurationError("bad-value", message, where=flag, fix=f"write it as {flag} name=value")
        parsed[key.strip()] = value
        hide_setting(key.strip(), value)
    return parsed


def _bad_file(name: str, problem: str, fix: str) -> ConfigurationError:
    return ConfigurationError("bad-secret-file", problem, name, fix)


def _from_toml(text: str | None, name: str, read_file: Callable[[str], str]) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError("bad-toml", f"not valid TOML: {error}", where=name, fix="correct that line") from None
    try:
        document = underscored(document)
    except BadValue as error:
        raise ConfigurationError("bad-value", error.problem, where=name, fix=error.fix) from None
    for secret in SECRETS_IN_FILES:
        path = document.pop(f"{secret}_file", None)
        if path is not None:
            written = {f"{secret}_FILE": str(path)} | ({secret: ""} if secret in document else {})
            document |= settings.secret_files(written, [secret], read_file, _bad_file)
    if "set" in document:
        document["settings"] = document.pop("set")
    for key in document:
        if key not in _FIELDS:
            known = [TABLES.get(known, known) for known in _FIELDS]
            raise ConfigurationError("unknown-key", f"unknown key {key!r}", where=name, fix=nearest(key, known))
    return document


def _from_environment(environment: Mapping[str, str]) -> list[SettingsSource]:
    variables = {name: (_variable(name),) for name in _FIELDS if name not in TABLES}
    known = [variable for (variable,) in variables.values()]
    for variable in sorted(environment):
        is_option = variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith((*NOT_OPTIONS, SETTING_PREFIX))
        if is_option and variable not in (*known, _TEST_SEED):
            message = f"unknown variable {variable}"
            raise ConfigurationError("unknown-key", message, "the environment", nearest(variable, known))
    pairs = {
        variable.removeprefix(SETTING_PREFIX).lower(): value
        for variable, value in sorted(environment.items())
        if variable.startswith(SETTING_PREFIX)
    }
    return [settings.from_environment(environment, variables), SettingsSource({"settings": pairs}, _variable)]


def _variable(name: str) -> str:
    return f"{ENVIRONMENT_PREFIX}{'SET_*' if name == 'settings' else name.upper()}"


def _flag(name: str) -> str:
    return {"settings": "--set", "adapter": "the command line"}.get(name, "--" + name.replace("_", "-"))


def _bad_value(name: str, raw: object, origin: str, bad: BadValue) -> ConfigurationError:
    if name in TABLES:
        return ConfigurationError("bad-value", bad.problem, origin, bad.fix)
    shown = "the value" if _FIELDS[name].metadata["secret"] else repr(raw)
    message = f"{name} {bad.problem or f'must be {bad.wanted}, not {shown}'}"
    return ConfigurationError("bad-value", message, origin, f"give another value; {name} is: {help_text(name)}")


def _check_together(config: ServeConfig) -> None:
    if config.sources and (config.adapter or config.mapping or config.mappings or config.ledger):
        raise ConfigurationError(
            "adapter-and-sources",
            "there are [sources], and an adapter, mapping or ledger for a single upstream as well",
            "sources",
            "move it into the table of its source: [sources.NAME]",
        )
    if config.seed_every != "never" and config.seed_to is None:
        raise ConfigurationError(
            "no-seed-target", "the seeds have nowhere to go", "seed_every, seed_to", "give --seed-to a directory or URI"
        )
    if (config.tls_cert is None) != (config.tls_key is None):
        raise ConfigurationError(
            "bad-tls", "TLS needs both a certificate and its key", "tls_cert, tls_key", "give both, or neither"
        )
    if config.tls_client_ca is not None and config.tls_cert is None:
        raise ConfigurationError(
            "bad-tls", "client certificates need TLS", "tls_client_ca", "give --tls-cert and --tls-key too"
        )
