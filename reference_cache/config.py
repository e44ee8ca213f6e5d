"""Settings of a cache, read from the variables zero-cache itself reads.

Pure: the caller passes the environment. A deployment of zero-cache can use this cache with the same variables: those
that are used here have zero-cache's meaning and default. Its other variables are accepted and listed in `unused`, which
the command line prints and `/statusz` shows. A `ZERO_` variable that zero-cache does not have is an error, as is an
invalid value. Errors name the variable and the fix, never the value of a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from protocol.sync.ast_limits import QueryLimits
from reference_cache.errors import BadSetting
from reference_cache.zero_variables import NOT_USED
from service_kit.settings import (
    BadValue,
    Reader,
    declared,
    from_environment,
    number,
    path,
    secret_files,
    setting,
    text,
    words,
)
from service_kit.settings import load as load_settings
from service_kit.suggestions import closest

_RESERVED_PARAMETERS = frozenset({"schema", "appid"})
_ORIGIN = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s@?#]+|null")
_APP_ID = re.compile(r"[a-z0-9_]+")
_TRUE, _FALSE = frozenset({"true", "1", "t", "yes"}), frozenset({"false", "0", "f", "no"})


# `{name}` in a fix is the variable that has the value.


def _flag(value: str) -> bool:
    if value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise BadValue(problem=f"{value!r} is neither true nor false", fix="set {name}=true or {name}=false")


def _whole(low: int, high: int | None = None) -> Reader:
    wanted = f"a whole number from {low} to {high}" if high is not None else f"a whole number, {low} or more"

    def read(value: str) -> int:
        if not value.strip().isdecimal() or not low <= int(value) <= (high if high is not None else int(value)):
            raise BadValue(wanted)
        return int(value)

    return read


def _one_of(*allowed: str) -> Reader:
    def read(value: str) -> str:
        if value not in allowed:
            raise BadValue(problem=f"{value!r} is unknown", fix=f"set {{name}} to one of {', '.join(allowed)}")
        return value

    return read


def _url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise BadValue(problem="not an http or https URL", fix="set {name}=https://your-app/…")
    return value


def _urls(value: str) -> tuple[str, ...]:
    urls = tuple(map(_url, words(value)))
    if any(map(reserved_parameters, urls)):
        problem = "the URL has a query parameter that the cache adds itself"
        raise BadValue(problem=problem, fix="leave schema and appID out of the URL")
    return urls


def _origins(value: str) -> tuple[str, ...]:
    origins = words(value)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            fix = "set {name}=https://app.example.com, without a path; * stands for a part of the host"
            raise BadValue(problem=f"{origin!r} is no origin", fix=fix)
    return origins


def reserved_parameters(url: str) -> list[str]:
    """The query parameters of an application's URL that are the cache's to set."""
    names = [name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)]
    return [name for name in names if name.lower() in _RESERVED_PARAMETERS]


def _stream(value: str) -> str:
    if urlsplit(value).scheme not in ("ws", "wss", "http", "https"):
        fix = "set {name}=ws://host:port/changes/v0/stream"
        raise BadValue(problem="not the URL of a change source", fix=fix)
    return value


def _app_id(value: str) -> str:
    if not _APP_ID.fullmatch(value):
        raise BadValue(problem=f"{value!r} is no app id", fix="use lower-case letters, digits and the underscore")
    return value


def _jwk(value: str) -> str:
    try:
        if not isinstance(json.loads(value), dict):
            raise ValueError
    except ValueError:
        raise BadValue(problem="not a JSON Web Key", fix="set {name} to one JSON object") from None
    return value


def _is_development(value: str) -> bool:
    return value == "development"


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

    upstream_type: str = setting(
        "custom", _one_of("custom"), "kind of upstream; a change source is 'custom'", "ZERO_UPSTREAM_TYPE"
    )
    upstream_db: str = setting(
        "", _stream, "URL of the change source, ws://…/changes/v0/stream", "ZERO_UPSTREAM_DB", secret=True
    )
    port: int = setting(4848, _whole(0, 65535), "port of the sync socket and the pages", "ZERO_PORT")
    replica_file: Path = setting(
        Path("zero.db"),
        path,
        "SQLite file of the replica; client records are kept in the same folder",
        "ZERO_REPLICA_FILE",
    )
    app_id: str = setting("zero", _app_id, "names the schemas of the cache's own tables", "ZERO_APP_ID")
    shard_num: int = setting(0, _whole(0), "shard of the app", "ZERO_SHARD_NUM")
    publications: tuple[str, ...] = setting(
        (), words, "publications to request from the change source", "ZERO_APP_PUBLICATIONS"
    )
    query_urls: tuple[str, ...] = setting(
        (), _urls, "where the application turns named queries into ASTs", "ZERO_QUERY_URL", "ZERO_GET_QUERIES_URL"
    )
    query_api_key: str | None = setting(
        None, text, "sent as X-Api-Key", "ZERO_QUERY_API_KEY", "ZERO_GET_QUERIES_API_KEY", secret=True
    )
    query_forward_cookies: bool = setting(
        False, _flag, "pass cookies on", "ZERO_QUERY_FORWARD_COOKIES", "ZERO_GET_QUERIES_FORWARD_COOKIES"
    )
    query_allowed_client_headers: tuple[str, ...] = setting(
        (),
        words,
        "headers a client may set on query requests",
        "ZERO_QUERY_ALLOWED_CLIENT_HEADERS",
        "ZERO_GET_QUERIES_ALLOWED_CLIENT_HEADERS",
    )
    query_allowed_request_headers: tuple[str, ...] = setting(
        (),
        words,
        "headers of the socket's request to pass on",
        "ZERO_QUERY_ALLOWED_REQUEST_HEADERS",
        "ZERO_GET_QUERIES_ALLOWED_REQUEST_HEADERS",
    )
    mutate_urls: tuple[str, ...] = setting(
        (), _urls, "where the application runs its mutators", "ZERO_MUTATE_URL", "ZERO_PUSH_URL"
    )
    mutate_api_key: str | None = setting(
        None, text, "sent as X-Api-Key", "ZERO_MUTATE_API_KEY", "ZERO_PUSH_API_KEY", secret=True
    )
    mutate_forward_cookies: bool = setting(
        False, _flag, "pass cookies on", "ZERO_MUTATE_FORWARD_COOKIES", "ZERO_PUSH_FORWARD_COOKIES"
    )
    mutate_allowed_client_headers: tuple[str, ...] = setting(
        (),
        words,
        "headers a client may set on mutate requests",
        "ZERO_MUTATE_ALLOWED_CLIENT_HEADERS",
        "ZERO_PUSH_ALLOWED_CLIENT_HEADERS",
    )
    mutate_allowed_request_headers: tuple[str, ...] = setting(
        (),
        words,
        "headers of the socket's request to pass on",
        "ZERO_MUTATE_ALLOWED_REQUEST_HEADERS",
        "ZERO_PUSH_ALLOWED_REQUEST_HEADERS",
    )
    auth_secret: str | None = setting(None, text, "symmetric key of the clients' JWTs", "ZERO_AUTH_SECRET", secret=True)
    auth_jwk: str | None = setting(None, _jwk, "key of the clients' JWTs, as a JWK", "ZERO_AUTH_JWK", secret=True)
    auth_jwks_url: str | None = setting(
        None, _url, "where the public keys of the clients' JWTs are", "ZERO_AUTH_JWKS_URL"
    )
    auth_issuer: str | None = setting(None, text, "issuer a JWT must have", "ZERO_AUTH_ISSUER")
    auth_audience: str | None = setting(None, text, "audience a JWT must have", "ZERO_AUTH_AUDIENCE")
    revalidate_seconds: float = setting(
        300.0, number, "how often credentials are checked again", "ZERO_AUTH_REVALIDATE_INTERVAL_SECONDS"
    )
    retransform_seconds: float = setting(
        300.0, number, "how often named queries are transformed again", "ZERO_AUTH_RETRANSFORM_INTERVAL_SECONDS"
    )
    auto_reset: bool = setting(True, _flag, "sync from scratch when the change source asks for it", "ZERO_AUTO_RESET")
    admin_password: str | None = setting(
        None, text, "opens the inspector, /metrics and /statusz", "ZERO_ADMIN_PASSWORD", secret=True
    )
    log_level: str = setting(
        "info", _one_of("debug", "info", "warn", "error"), "lowest level that is logged", "ZERO_LOG_LEVEL"
    )
    log_format: str = setting("text", _one_of("text", "json"), "text for people, json for machines", "ZERO_LOG_FORMAT")
    compression: bool = setting(False, _flag, "compress frames", "ZERO_WEBSOCKET_COMPRESSION")
    max_payload_bytes: int = setting(
        10 * 1024 * 1024, _whole(1), "largest frame from a client", "ZERO_WEBSOCKET_MAX_PAYLOAD_BYTES"
    )
    yield_threshold_ms: float = setting(
        10.0, number, "longest uninterrupted work on the event loop, in milliseconds", "ZERO_YIELD_THRESHOLD_MS"
    )
    forget_group_hours: float = setting(
        48.0,
        number,
        "how long a client group may be disconnected before it is deleted",
        "ZERO_CVR_GARBAGE_COLLECTION_INACTIVITY_THRESHOLD_HOURS",
    )
    mutation_limit: int | None = setting(
        None,
        _whole(1),
        "mutations of a client group per window; no limit if not set",
        "ZERO_PER_USER_MUTATION_LIMIT_MAX",
    )
    mutation_limit_window_ms: int = setting(
        60_000, _whole(1), "length of that window, in milliseconds", "ZERO_PER_USER_MUTATION_LIMIT_WINDOW_MS"
    )
    host: str = setting(
        "127.0.0.1", text, "address to listen on; 0.0.0.0 for all addresses of the machine", "CHANGESOURCE_CACHE_HOST"
    )
    tls_cert: Path | None = setting(
        None, path, "PEM file with the server's certificate chain, for wss and https", "CHANGESOURCE_CACHE_TLS_CERT"
    )
    tls_key: Path | None = setting(
        None, path, "PEM file with the certificate's private key", "CHANGESOURCE_CACHE_TLS_KEY"
    )
    allowed_origins: tuple[str, ...] = setting(
        (),
        _origins,
        "web pages that may connect, such as https://app.example.com,https://*.example.com; any if not set",
        "CHANGESOURCE_CACHE_ALLOWED_ORIGINS",
    )
    max_connections: int = setting(
        20_000,
        _whole(1),
        "sockets at once; further ones are refused, and clients try again later",
        "CHANGESOURCE_CACHE_MAX_CONNECTIONS",
    )
    max_connections_per_address: int = setting(
        20_000,
        _whole(1),
        "sockets from one address at once; behind a proxy, all have the proxy's address",
        "CHANGESOURCE_CACHE_MAX_CONNECTIONS_PER_ADDRESS",
    )
    send_buffer_bytes: int = setting(
        64 * 1024 * 1024,
        _whole(64 * 1024),
        "bytes that may wait for one client; one that falls further behind is disconnected",
        "CHANGESOURCE_CACHE_SEND_BUFFER_BYTES",
    )
    refuse_ad_hoc_queries: bool = setting(
        False, _flag, "accept named queries only, no ASTs from clients", "CHANGESOURCE_CACHE_REFUSE_AD_HOC_QUERIES"
    )
    client_messages_per_second: int = setting(
        500,
        _whole(1),
        "average rate per client; after a burst of ten seconds' worth the client is read more slowly",
        "CHANGESOURCE_CACHE_CLIENT_MESSAGES_PER_SECOND",
    )
    client_bytes_per_second: int = setting(
        8 * 1024 * 1024,
        _whole(1024),
        "average rate per client, with the same bursts",
        "CHANGESOURCE_CACHE_CLIENT_BYTES_PER_SECOND",
    )
    group_queries: int = setting(
        5_000, _whole(1), "queries a client group may have at once", "CHANGESOURCE_CACHE_GROUP_QUERIES"
    )
    group_query_bytes: int = setting(
        16 * 1024 * 1024,
        _whole(1024),
        "size of the names, arguments and ASTs of a group's queries",
        "CHANGESOURCE_CACHE_GROUP_QUERY_BYTES",
    )
    group_clients: int = setting(1_000, _whole(1), "clients a group may have", "CHANGESOURCE_CACHE_GROUP_CLIENTS")
    records_bytes: int = setting(
        8 * 1024 * 1024 * 1024,
        _whole(1024 * 1024),
        "size of all client records; when it is reached, unused groups are deleted and new queries are refused",
        "CHANGESOURCE_CACHE_RECORDS_BYTES",
    )
    intake_group_bytes: int = setting(
        32 * 1024 * 1024,
        _whole(64 * 1024),
        "bytes from one client group that may wait to be handled; more are refused with ServerOverloaded",
        "CHANGESOURCE_CACHE_INTAKE_GROUP_BYTES",
    )
    intake_bytes: int = setting(
        256 * 1024 * 1024,
        _whole(1024 * 1024),
        "bytes from all clients that may wait to be handled",
        "CHANGESOURCE_CACHE_INTAKE_BYTES",
    )
    send_buffers_bytes: int = setting(
        256 * 1024 * 1024,
        _whole(64 * 1024),
        "bytes that may wait for all clients together; above that, the client that reads least is disconnected",
        "CHANGESOURCE_CACHE_SEND_BUFFERS_BYTES",
    )
    hydration_seconds: float = setting(
        60.0, number, "longest hydration of one query; a longer one fails", "CHANGESOURCE_CACHE_HYDRATION_SECONDS"
    )
    hydration_rows: int = setting(
        1_000_000,
        _whole(1),
        "most rows of one hydration, each counted as often as the query reaches it; one with more fails",
        "CHANGESOURCE_CACHE_HYDRATION_ROWS",
    )
    query_objects: int = setting(
        6000,
        _whole(1),
        "most JSON objects in a client's query; a comparison is three, a subquery three plus its content",
        "CHANGESOURCE_CACHE_QUERY_OBJECTS",
    )
    query_values: int = setting(
        50_000,
        _whole(1),
        "most members of objects and lists in a client's query; each value in the list of an IN counts",
        "CHANGESOURCE_CACHE_QUERY_VALUES",
    )
    query_characters: int = setting(
        200_000, _whole(1), "most characters of all text in a client's query", "CHANGESOURCE_CACHE_QUERY_CHARACTERS"
    )
    push_seconds: float = setting(
        1.0,
        number,
        "how long expensive queries may delay a step to new data; then they are stopped, and their clients reconnect",
        "CHANGESOURCE_CACHE_PUSH_SECONDS",
    )
    development: bool = setting(
        False, _is_development, "development opens the inspector without a password", "NODE_ENV"
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
        """The schema of the cache's own tables in the upstream, such as `zero_0`."""
        return f"{self.app_id}_{self.shard_num}"


def settings() -> list[Field[Any]]:
    """The fields that are read from variables, in the order they are documented."""
    return list(declared(CacheConfig).values())


def load(environment: Mapping[str, str]) -> CacheConfig:
    """The configuration an environment describes, its secrets masked in all output; raises `BadSetting`."""
    environment = {name: value for name, value in environment.items() if value != ""}
    variables = {each.name: (each.metadata["variable"], *each.metadata["old"]) for each in settings()}
    secrets = [name for each in settings() if each.metadata["secret"] for name in variables[each.name]]
    environment = secret_files(environment, secrets, lambda path: Path(path).read_text(), BadSetting)
    values, _ = load_settings(CacheConfig, [from_environment(environment, variables)], _bad_value)
    unused = _unused(environment, {variable for names in variables.values() for variable in names})
    config = CacheConfig(**values, unused=unused)
    _check(config)
    return config


def _bad_value(name: str, raw: object, variable: str, bad: BadValue) -> BadSetting:
    fix = bad.fix.replace("{name}", variable) or f"set {variable} to {bad.wanted}"
    return BadSetting(variable, bad.problem or f"{raw!r} is not {bad.wanted}", fix)


def _unused(environment: Mapping[str, str], known: set[str]) -> tuple[str, ...]:
    others = sorted(
        name for name in environment if name.startswith(("ZERO_", "CHANGESOURCE_CACHE_")) and name not in known
    )
    for name in others:
        if name not in NOT_USED:
            near = closest(name, known | NOT_USED)
            raise BadSetting(name, "no such setting", f"did you mean {near}?" if near else f"unset {name}")
    return tuple(others)


def _check(config: CacheConfig) -> None:
    if not config.upstream_db:
        raise BadSetting(
            "ZERO_UPSTREAM_DB",
            "no change source is configured",
            "set it to the change source, ws://host:port/changes/v0/stream",
        )
    if (config.tls_cert is None) != (config.tls_key is None):
        missing = "CERT" if config.tls_cert is None else "KEY"
        fix = "set both CHANGESOURCE_CACHE_TLS_CERT and CHANGESOURCE_CACHE_TLS_KEY, or neither"
        raise BadSetting(f"CHANGESOURCE_CACHE_TLS_{missing}", "TLS needs a certificate and its key", fix)
    ways = {"SECRET": config.auth_secret, "JWK": config.auth_jwk, "JWKS_URL": config.auth_jwks_url}
    variables = [f"ZERO_AUTH_{name}" for name, value in ways.items() if value is not None]
    if len(variables) > 1:
        raise BadSetting(variables[1], f"it and {variables[0]} are both set", "set one of them")
