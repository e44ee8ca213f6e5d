"""Settings of a cache, read from the variables zero-cache itself reads.

Pure: the caller hands in the environment. A deployment of zero-cache can be pointed at this cache without new names:
what is used here has zero-cache's meaning and default; its other variables are known and listed in `unused`, so that
nobody wonders why one has no effect; a `ZERO_` variable that zero-cache does not know either is an error, as is a value
that cannot be. Errors name the variable and the remedy, never the value of a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from protocol.redaction import hide_setting
from protocol.sync.ast_limits import QueryLimits
from reference_cache.errors import BadSetting
from reference_cache.zero_variables import NOT_USED
from service_kit.suggestions import closest

_RESERVED_PARAMETERS = frozenset({"schema", "appid"})
_ORIGIN = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s@?#]+|null")
_APP_ID = re.compile(r"[a-z0-9_]+")
_TRUE, _FALSE = frozenset({"true", "1", "t", "yes"}), frozenset({"false", "0", "f", "no"})


def of(
    variable: str, read: Callable[[str, str], Any], about: str, *old: str, secret: bool = False
) -> Mapping[str, Any]:
    """What is known of a setting: its variable, how to read it, what it is for, and names it had before."""
    return {"variable": variable, "read": read, "about": about, "old": old, "secret": secret}


def _text(variable: str, value: str) -> str:
    return value


def _list(variable: str, value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _flag(variable: str, value: str) -> bool:
    if value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise BadSetting(variable, f"{value!r} is neither true nor false", f"set {variable}=true or {variable}=false")


def _whole(low: int, high: int | None = None) -> Callable[[str, str], int]:
    range_text = f"a whole number from {low} to {high}" if high is not None else f"a whole number, {low} or more"

    def read(variable: str, value: str) -> int:
        if not value.strip().isdecimal() or not low <= int(value) <= (high if high is not None else int(value)):
            raise BadSetting(variable, f"{value!r} is not {range_text}", f"set {variable} to {range_text}")
        return int(value)

    return read


def _number(variable: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadSetting(variable, f"{value!r} is not a number", f"set {variable} to a number") from None


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def read(variable: str, value: str) -> str:
        if value not in allowed:
            raise BadSetting(variable, f"{value!r} is unknown", f"set {variable} to one of {', '.join(allowed)}")
        return value

    return read


def _url(variable: str, value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise BadSetting(variable, "not an http or https URL", f"set {variable}=https://your-app/…")
    return value


def _urls(variable: str, value: str) -> tuple[str, ...]:
    urls = tuple(_url(variable, url) for url in _list(variable, value))
    for url in urls:
        if reserved_parameters(url):
            raise BadSetting(
                variable,
                "the URL has a query parameter that the cache adds itself",
                "leave schema and appID out of the URL",
            )
    return urls


def _origins(variable: str, value: str) -> tuple[str, ...]:
    origins = _list(variable, value)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            fix = f"set {variable}=https://app.example.com, without a path; * stands for a part of the host"
            raise BadSetting(variable, f"{origin!r} is no origin", fix)
    return origins


def reserved_parameters(url: str) -> list[str]:
    """The query parameters of an application's URL that are the cache's to set."""
    names = [name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)]
    return [name for name in names if name.lower() in _RESERVED_PARAMETERS]


def _stream(variable: str, value: str) -> str:
    if urlsplit(value).scheme not in ("ws", "wss", "http", "https"):
        raise BadSetting(variable, "not the URL of a change source", f"set {variable}=ws://host:port/changes/v0/stream")
    return value


def _app_id(variable: str, value: str) -> str:
    if not _APP_ID.fullmatch(value):
        raise BadSetting(variable, f"{value!r} is no app id", "use lower-case letters, digits and the underscore")
    return value


def _jwk(variable: str, value: str) -> str:
    try:
        if not isinstance(json.loads(value), dict):
            raise ValueError
    except ValueError:
        raise BadSetting(variable, "not a JSON Web Key", f"set {variable} to one JSON object") from None
    return value


def _is_development(variable: str, value: str) -> bool:
    return value == "development"


def _path(variable: str, value: str) -> Path:
    return Path(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppEndpoint:
    """One HTTP endpoint of the application. The first URL is called unless a client names another that matches one."""

    urls: tuple[str, ...] = ()
    api_key: str | None = None
    forward_cookies: bool = False
    allowed_client_headers: tuple[str, ...] = ()
    allowed_request_headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """Every setting of one cache. Invariant: each value has passed its reader."""

    upstream_type: str = field(
        default="custom",
        metadata=of("ZERO_UPSTREAM_TYPE", _one_of("custom"), "kind of upstream; a change source is 'custom'"),
    )
    upstream_db: str = field(
        default="",
        metadata=of("ZERO_UPSTREAM_DB", _stream, "URL of the change source, ws://…/changes/v0/stream", secret=True),
    )
    port: int = field(default=4848, metadata=of("ZERO_PORT", _whole(0, 65535), "port of the sync socket and the pages"))
    replica_file: Path = field(
        default=Path("zero.db"),
        metadata=of("ZERO_REPLICA_FILE", _path, "SQLite file of the replica; client records are kept beside it"),
    )
    app_id: str = field(
        default="zero", metadata=of("ZERO_APP_ID", _app_id, "names the schemas of the cache's own tables")
    )
    shard_num: int = field(default=0, metadata=of("ZERO_SHARD_NUM", _whole(0), "shard of the app"))
    publications: tuple[str, ...] = field(
        default=(), metadata=of("ZERO_APP_PUBLICATIONS", _list, "publications to ask the change source for")
    )
    query_urls: tuple[str, ...] = field(
        default=(),
        metadata=of(
            "ZERO_QUERY_URL", _urls, "where the application turns named queries into ASTs", "ZERO_GET_QUERIES_URL"
        ),
    )
    query_api_key: str | None = field(
        default=None,
        metadata=of("ZERO_QUERY_API_KEY", _text, "sent as X-Api-Key", "ZERO_GET_QUERIES_API_KEY", secret=True),
    )
    query_forward_cookies: bool = field(
        default=False,
        metadata=of("ZERO_QUERY_FORWARD_COOKIES", _flag, "pass cookies on", "ZERO_GET_QUERIES_FORWARD_COOKIES"),
    )
    query_allowed_client_headers: tuple[str, ...] = field(
        default=(),
        metadata=of(
            "ZERO_QUERY_ALLOWED_CLIENT_HEADERS",
            _list,
            "headers a client may set on query requests",
            "ZERO_GET_QUERIES_ALLOWED_CLIENT_HEADERS",
        ),
    )
    query_allowed_request_headers: tuple[str, ...] = field(
        default=(),
        metadata=of(
            "ZERO_QUERY_ALLOWED_REQUEST_HEADERS",
            _list,
            "headers of the socket's request to pass on",
            "ZERO_GET_QUERIES_ALLOWED_REQUEST_HEADERS",
        ),
    )
    mutate_urls: tuple[str, ...] = field(
        default=(), metadata=of("ZERO_MUTATE_URL", _urls, "where the application runs its mutators", "ZERO_PUSH_URL")
    )
    mutate_api_key: str | None = field(
        default=None, metadata=of("ZERO_MUTATE_API_KEY", _text, "sent as X-Api-Key", "ZERO_PUSH_API_KEY", secret=True)
    )
    mutate_forward_cookies: bool = field(
        default=False, metadata=of("ZERO_MUTATE_FORWARD_COOKIES", _flag, "pass cookies on", "ZERO_PUSH_FORWARD_COOKIES")
    )
    mutate_allowed_client_headers: tuple[str, ...] = field(
        default=(),
        metadata=of(
            "ZERO_MUTATE_ALLOWED_CLIENT_HEADERS",
            _list,
            "headers a client may set on mutate requests",
            "ZERO_PUSH_ALLOWED_CLIENT_HEADERS",
        ),
    )
    mutate_allowed_request_headers: tuple[str, ...] = field(
        default=(),
        metadata=of(
            "ZERO_MUTATE_ALLOWED_REQUEST_HEADERS",
            _list,
            "headers of the socket's request to pass on",
            "ZERO_PUSH_ALLOWED_REQUEST_HEADERS",
        ),
    )
    auth_secret: str | None = field(
        default=None, metadata=of("ZERO_AUTH_SECRET", _text, "symmetric key of the clients' JWTs", secret=True)
    )
    auth_jwk: str | None = field(
        default=None, metadata=of("ZERO_AUTH_JWK", _jwk, "key of the clients' JWTs, as a JWK", secret=True)
    )
    auth_jwks_url: str | None = field(
        default=None, metadata=of("ZERO_AUTH_JWKS_URL", _url, "where the public keys of the clients' JWTs are")
    )
    auth_issuer: str | None = field(default=None, metadata=of("ZERO_AUTH_ISSUER", _text, "issuer a JWT must have"))
    auth_audience: str | None = field(
        default=None, metadata=of("ZERO_AUTH_AUDIENCE", _text, "audience a JWT must have")
    )
    revalidate_seconds: float = field(
        default=300.0,
        metadata=of("ZERO_AUTH_REVALIDATE_INTERVAL_SECONDS", _number, "how often credentials are checked again"),
    )
    retransform_seconds: float = field(
        default=300.0,
        metadata=of("ZERO_AUTH_RETRANSFORM_INTERVAL_SECONDS", _number, "how often named queries are asked for again"),
    )
    auto_reset: bool = field(
        default=True, metadata=of("ZERO_AUTO_RESET", _flag, "sync from scratch when the change source asks for it")
    )
    admin_password: str | None = field(
        default=None,
        metadata=of("ZERO_ADMIN_PASSWORD", _text, "opens the inspector, /metrics and /statusz", secret=True),
    )
    log_level: str = field(
        default="info", metadata=of("ZERO_LOG_LEVEL", _one_of("debug", "info", "warn", "error"), "least level")
    )
    log_format: str = field(
        default="text", metadata=of("ZERO_LOG_FORMAT", _one_of("text", "json"), "for people or for machines")
    )
    compression: bool = field(default=False, metadata=of("ZERO_WEBSOCKET_COMPRESSION", _flag, "compress frames"))
    max_payload_bytes: int = field(
        default=10 * 1024 * 1024,
        metadata=of("ZERO_WEBSOCKET_MAX_PAYLOAD_BYTES", _whole(1), "largest frame from a client"),
    )
    yield_threshold_ms: float = field(
        default=10.0,
        metadata=of("ZERO_YIELD_THRESHOLD_MS", _number, "longest slice of work before others get their turn"),
    )
    forget_group_hours: float = field(
        default=48.0,
        metadata=of(
            "ZERO_CVR_GARBAGE_COLLECTION_INACTIVITY_THRESHOLD_HOURS", _number, "how long a client group may stay away"
        ),
    )
    mutation_limit: int | None = field(
        default=None,
        metadata=of(
            "ZERO_PER_USER_MUTATION_LIMIT_MAX", _whole(1), "mutations of a client group per window; no limit if not set"
        ),
    )
    mutation_limit_window_ms: int = field(
        default=60_000, metadata=of("ZERO_PER_USER_MUTATION_LIMIT_WINDOW_MS", _whole(1), "the window of that limit")
    )
    host: str = field(
        default="127.0.0.1",
        metadata=of("CHANGESOURCE_CACHE_HOST", _text, "address to listen on; 0.0.0.0 is every one of this machine"),
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=of(
            "CHANGESOURCE_CACHE_TLS_CERT", _path, "PEM file with the server's certificate chain, for wss and https"
        ),
    )
    tls_key: Path | None = field(
        default=None, metadata=of("CHANGESOURCE_CACHE_TLS_KEY", _path, "PEM file with the certificate's private key")
    )
    allowed_origins: tuple[str, ...] = field(
        default=(),
        metadata=of(
            "CHANGESOURCE_CACHE_ALLOWED_ORIGINS",
            _origins,
            "web pages that may connect, such as https://app.example.com,https://*.example.com; any if not set",
        ),
    )
    max_connections: int = field(
        default=20_000,
        metadata=of("CHANGESOURCE_CACHE_MAX_CONNECTIONS", _whole(1), "sockets at once; more are told to come back"),
    )
    max_connections_per_address: int = field(
        default=20_000,
        metadata=of(
            "CHANGESOURCE_CACHE_MAX_CONNECTIONS_PER_ADDRESS",
            _whole(1),
            "sockets of one address at once; behind a proxy all have the proxy's",
        ),
    )
    send_buffer_bytes: int = field(
        default=64 * 1024 * 1024,
        metadata=of(
            "CHANGESOURCE_CACHE_SEND_BUFFER_BYTES",
            _whole(64 * 1024),
            "how far a client may fall behind before it is dropped",
        ),
    )
    refuse_ad_hoc_queries: bool = field(
        default=False,
        metadata=of(
            "CHANGESOURCE_CACHE_REFUSE_AD_HOC_QUERIES", _flag, "take named queries only, none that a client wrote"
        ),
    )
    client_messages_per_second: int = field(
        default=500,
        metadata=of(
            "CHANGESOURCE_CACHE_CLIENT_MESSAGES_PER_SECOND",
            _whole(1),
            "messages of one client in the long run; ten seconds' worth may come at once, then it is read more slowly",
        ),
    )
    client_bytes_per_second: int = field(
        default=8 * 1024 * 1024,
        metadata=of("CHANGESOURCE_CACHE_CLIENT_BYTES_PER_SECOND", _whole(1024), "bytes of one client, likewise"),
    )
    group_queries: int = field(
        default=5_000,
        metadata=of("CHANGESOURCE_CACHE_GROUP_QUERIES", _whole(1), "queries a client group may have at once"),
    )
    group_query_bytes: int = field(
        default=16 * 1024 * 1024,
        metadata=of(
            "CHANGESOURCE_CACHE_GROUP_QUERY_BYTES", _whole(1024), "names, arguments and ASTs of a group's queries"
        ),
    )
    group_clients: int = field(
        default=1_000, metadata=of("CHANGESOURCE_CACHE_GROUP_CLIENTS", _whole(1), "clients a group may have")
    )
    records_bytes: int = field(
        default=8 * 1024 * 1024 * 1024,
        metadata=of(
            "CHANGESOURCE_CACHE_RECORDS_BYTES",
            _whole(1024 * 1024),
            "client records of all groups; then groups that nobody uses are forgotten, and new queries must wait",
        ),
    )
    intake_group_bytes: int = field(
        default=32 * 1024 * 1024,
        metadata=of(
            "CHANGESOURCE_CACHE_INTAKE_GROUP_BYTES",
            _whole(64 * 1024),
            "what a client group may have sent that still waits; more is refused with ServerOverloaded",
        ),
    )
    intake_bytes: int = field(
        default=256 * 1024 * 1024,
        metadata=of(
            "CHANGESOURCE_CACHE_INTAKE_BYTES",
            _whole(1024 * 1024),
            "what all clients together may have sent that still waits",
        ),
    )
    send_buffers_bytes: int = field(
        default=256 * 1024 * 1024,
        metadata=of(
            "CHANGESOURCE_CACHE_SEND_BUFFERS_BYTES",
            _whole(64 * 1024),
            "what may wait for all clients together; beyond, the one that reads least is dropped",
        ),
    )
    hydration_seconds: float = field(
        default=60.0,
        metadata=of("CHANGESOURCE_CACHE_HYDRATION_SECONDS", _number, "time one query may take to start; then an error"),
    )
    hydration_rows: int = field(
        default=1_000_000,
        metadata=of(
            "CHANGESOURCE_CACHE_HYDRATION_ROWS",
            _whole(1),
            "rows one query may have when it starts, counted as often as they are reached; then an error",
        ),
    )
    query_objects: int = field(
        default=6000,
        metadata=of(
            "CHANGESOURCE_CACHE_QUERY_OBJECTS",
            _whole(1),
            "JSON objects in a client's query; a comparison is three, a subquery three and what is in it",
        ),
    )
    query_values: int = field(
        default=50_000,
        metadata=of(
            "CHANGESOURCE_CACHE_QUERY_VALUES",
            _whole(1),
            "members of objects and lists in a client's query; a list of IN counts each of its members",
        ),
    )
    query_characters: int = field(
        default=200_000,
        metadata=of("CHANGESOURCE_CACHE_QUERY_CHARACTERS", _whole(1), "characters of all text in a client's query"),
    )
    push_seconds: float = field(
        default=1.0,
        metadata=of(
            "CHANGESOURCE_CACHE_PUSH_SECONDS",
            _number,
            "how long very expensive queries may hold up one step to new data; then their clients start them again",
        ),
    )
    development: bool = field(
        default=False, metadata=of("NODE_ENV", _is_development, "development opens the inspector without a password")
    )
    unused: tuple[str, ...] = ()
    """Variables of zero-cache that are set and have no effect here."""

    @property
    def query(self) -> AppEndpoint:
        return self._endpoint("query")

    @property
    def mutate(self) -> AppEndpoint:
        return self._endpoint("mutate")

    def _endpoint(self, name: str) -> AppEndpoint:
        return AppEndpoint(**{each.name: getattr(self, f"{name}_{each.name}") for each in fields(AppEndpoint)})

    @property
    def verifies_tokens(self) -> bool:
        """Whether the cache itself checks the signatures of clients' tokens."""
        return any((self.auth_secret, self.auth_jwk, self.auth_jwks_url))

    @property
    def takes_credentials(self) -> bool:
        """Whether clients can present credentials: the cache verifies them, or the application does."""
        return self.verifies_tokens or bool(self.query_urls)

    @property
    def query_limits(self) -> QueryLimits:
        """How large a query may be that a client sends."""
        return QueryLimits(self.query_objects, self.query_values, self.query_characters)

    @property
    def cvr_file(self) -> Path:
        """The SQLite file of the client view records."""
        return self.replica_file.with_name(self.replica_file.name + "-cvr")

    @property
    def schema(self) -> str:
        """The schema of the cache's own tables in the store, such as `zero_0`."""
        return f"{self.app_id}_{self.shard_num}"


def settings() -> list[Any]:
    """The fields that are read from variables, in the order they are documented."""
    return [each for each in fields(CacheConfig) if "variable" in each.metadata]


def load(environment: Mapping[str, str]) -> CacheConfig:
    """The configuration an environment describes, its secrets masked in all output; raises `BadSetting`."""
    given = {name: value for name, value in environment.items() if value != ""}
    known: set[str] = set()
    found: dict[str, Any] = {}
    for each in settings():
        names = (each.metadata["variable"], *each.metadata["old"])
        known.update(names)
        variable = next((name for name in names if name in given), None)
        if variable is not None:
            hide_setting(variable, given[variable])
            found[each.name] = each.metadata["read"](variable, given[variable])
    unused = _unused(given, known)
    config = CacheConfig(**found, unused=unused)
    _check(config)
    return config


def _unused(given: Mapping[str, str], known: set[str]) -> tuple[str, ...]:
    others = sorted(name for name in given if name.startswith(("ZERO_", "CHANGESOURCE_CACHE_")) and name not in known)
    for name in others:
        if name not in NOT_USED:
            near = closest(name, known | NOT_USED)
            raise BadSetting(name, "no such setting", f"did you mean {near}?" if near else f"unset {name}")
    return tuple(others)


def _check(config: CacheConfig) -> None:
    if not config.upstream_db:
        raise BadSetting(
            "ZERO_UPSTREAM_DB",
            "no change source is given",
            "set it to the change source, ws://host:port/changes/v0/stream",
        )
    if (config.tls_cert is None) != (config.tls_key is None):
        missing = "CERT" if config.tls_cert is None else "KEY"
        fix = "set both CHANGESOURCE_CACHE_TLS_CERT and CHANGESOURCE_CACHE_TLS_KEY, or neither"
        raise BadSetting(f"CHANGESOURCE_CACHE_TLS_{missing}", "TLS needs a certificate and its key", fix)
    ways = {"SECRET": config.auth_secret, "JWK": config.auth_jwk, "JWKS_URL": config.auth_jwks_url}
    given = [f"ZERO_AUTH_{name}" for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise BadSetting(given[1], f"it and {given[0]} are both set", "set one of them")
