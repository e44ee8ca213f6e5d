"""The request that opens a stream: its path, its query parameters, and which dialect they use.

zero-cache sends `appID` and `shardNum` (the *shipped* dialect). The design *sketch* has a single `shardID`, read here
as `<app>_<shard>` when it ends in `_<digits>`, else as an app id with shard 0; so `zero_0` and `zero` name the same
shard as `appID=zero&shardNum=0`. Unknown parameters (such as an API key) are allowed.

A request without `lastWatermark` asks for an initial sync. Errors name the parameter and the fix; answer them with
their HTTP `status` before any other work, because zero-cache repeats a refused request every 25 ms.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, urlencode

from protocol import watermark
from protocol.errors import HandshakeError, WatermarkError

Dialect = Literal["shipped", "sketch"]
Version = Literal["v0"]

PATHS: Mapping[str, Version] = {"/changes/v0/stream": "v0"}
"""The version table: a new version of the protocol is one more entry."""

ZERO_RELEASES = ("1.9.0",)
"""The releases of `@rocicorp/zero` that the tests of this version run against."""

_MAX_PARAMETERS = 1000
#: As long as the name of a schema in Postgres, which a shard's name is there.
MAX_SHARD_NAME = 63
#: Publications are names in Postgres too; a consumer follows a few.
MAX_PUBLICATION_NAME = 63
MAX_PUBLICATIONS = 64
#: Characters of a bad value that an error repeats.
_SHOWN = 80
_APP_ID = re.compile(r"[a-z0-9_]+")
_SHARD_NUM = re.compile(r"[0-9]{1,9}")
#: No watermark is longer: two numbers of 36 digits, each with its length digit, and a dot.
_SHORT_TEXT = re.compile(r".{0,75}", re.DOTALL)
_SHARD_ID = re.compile(r"(?P<app>[a-z0-9_]+?)(?:_(?P<shard>[0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a consumer requests. Watermarks that are not None are valid; a replica version implies a last watermark."""

    dialect: Dialect
    app_id: str
    shard_num: int
    publications: frozenset[str] = frozenset()
    last_watermark: str | None = None
    replica_version: str | None = None

    @property
    def is_initial(self) -> bool:
        """Whether it asks for an initial sync."""
        return self.last_watermark is None

    @property
    def query(self) -> str:
        """The query string of this request, as a consumer sends it."""
        pairs: list[tuple[str, str]] = [("shardID", self.shard)]
        if self.dialect == "shipped":
            pairs = [("appID", self.app_id), ("shardNum", str(self.shard_num))]
        pairs += [("publications", name) for name in sorted(self.publications)]
        optional = (("lastWatermark", self.last_watermark), ("replicaVersion", self.replica_version))
        return urlencode(pairs + [(name, value) for name, value in optional if value is not None])

    @property
    def shard(self) -> str:
        """The schema of its own tables, such as `zero_0`."""
        return f"{self.app_id}_{self.shard_num}"


def parse_target(target: str) -> tuple[Version, Handshake]:
    """The version and parameters of a request target, such as `/changes/v0/stream?appID=zero&shardNum=0`."""
    path, _, query = target.partition("?")
    return parse_path(path), parse_query(query)


def parse_path(path: str) -> Version:
    """The protocol version that a path names; an unknown path is a 404."""
    version = PATHS.get(path)
    if version is None:
        known = ", ".join(PATHS)
        raise HandshakeError(f"unknown path {_shortened(path)!r}", where="path", fix=f"use {known}", status=404)
    return version


def parse_query(query: str) -> Handshake:
    """The parameters of a query string."""
    try:
        parameters = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError as error:
        raise HandshakeError(f"malformed query: {error}", where="query", fix="percent-encode UTF-8") from None
    return parse_parameters(parameters)


def parse_parameters(parameters: Mapping[str, Iterable[str]]) -> Handshake:
    """The parameters of a query that was split already: each name with all its values."""
    listed = {name: list(values) for name, values in parameters.items()}
    dialect, app_id, shard_num = _identity(listed)
    last = _watermark(listed, "lastWatermark")
    version = _watermark(listed, "replicaVersion")
    if version is not None and last is None:
        raise HandshakeError("is missing", where="lastWatermark", fix="send it with replicaVersion, or send neither")
    handshake = Handshake(dialect, app_id, shard_num, _publications(listed), last, version)
    if len(handshake.shard) > MAX_SHARD_NAME:
        where = "appID" if dialect == "shipped" else "shardID"
        message = f"app id and shard number have {len(handshake.shard)} characters together"
        raise HandshakeError(message, where=where, fix=f"use at most {MAX_SHARD_NAME}")
    return handshake


def _publications(parameters: dict[str, list[str]]) -> frozenset[str]:
    names = frozenset(parameters.get("publications", ()))
    if len(names) > MAX_PUBLICATIONS or any(len(name.encode()) > MAX_PUBLICATION_NAME for name in names):
        fix = f"send at most {MAX_PUBLICATIONS} names of at most {MAX_PUBLICATION_NAME} bytes"
        raise HandshakeError("are too many or too long", where="publications", fix=fix)
    return names


def _identity(parameters: dict[str, list[str]]) -> tuple[Dialect, str, int]:
    if "appID" in parameters or "shardNum" in parameters:
        app_id = _one(parameters, "appID", _APP_ID, "use lower-case letters, digits and _")
        shard_num = _one(parameters, "shardNum", _SHARD_NUM, "use a decimal integer, normally 0")
        return "shipped", app_id[0], int(shard_num[0])
    if "shardID" not in parameters:
        raise HandshakeError(
            "is missing", where="appID", fix="send appID and shardNum (or shardID, in the sketch dialect)"
        )
    shard_id = _one(parameters, "shardID", _SHARD_ID, "use lower-case letters, digits and _, such as zero_0")
    return "sketch", shard_id["app"], int(shard_id["shard"] or 0)


def _one(parameters: dict[str, list[str]], name: str, pattern: re.Pattern[str], fix: str) -> re.Match[str]:
    """The match of a parameter that must be there exactly once."""
    values = parameters.get(name, [])
    if not values:
        raise HandshakeError("is missing", where=name, fix=fix)
    if len(values) > 1:
        raise HandshakeError(f"is given {len(values)} times", where=name, fix="send it once")
    match = pattern.fullmatch(values[0])
    if match is None:
        raise HandshakeError(f"{_shortened(values[0])!r} is not valid", where=name, fix=fix)
    return match


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _watermark(parameters: dict[str, list[str]], name: str) -> str | None:
    if name not in parameters:
        return None
    try:
        return watermark.validate(_one(parameters, name, _SHORT_TEXT, "send a watermark")[0])
    except WatermarkError as error:
        fix = "send a watermark that this endpoint gave out, or leave the parameter out for an initial sync"
        raise HandshakeError(error.message, where=name, fix=fix) from None
