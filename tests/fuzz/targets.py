"""The doors that text from outside comes through, in process. Each takes one input and raises only what it announces.

A target returns normally or raises one of its `refuses`; anything else (a recursion error, a key error, a hang) is a
bug that one client could have caused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import protocol
from protocol import codec, watermark
from protocol.errors import ProtocolError
from protocol.framing import frame, unframe
from protocol.rules import Checker
from protocol.stream.handshake import parse_target
from protocol.stream.transcript import Connect, Frame
from protocol.sync import ast_json, handshake, messages
from protocol.sync.errors import SyncError
from reference_cache.app_client.url_pattern import is_allowed
from reference_cache.sync_server.access.jwt import BadToken, TokenRules, decode, with_secret
from reference_cache.zql.like import LikePatternError, like
from reference_cache.zql.query.check import check
from tests.fuzz.corpus import ASTS, MESSAGES, SCHEMA, TOKENS

FIXTURES = Path(protocol.__file__).parent / "fixtures"
STREAM = "/changes/v0/stream?appID=zero&shardNum=0"


@dataclass(frozen=True, slots=True)
class Target:
    """One door: examples of what comes in, what takes it, and the errors it may answer with."""

    name: str
    examples: tuple[str, ...]
    take: Callable[[str], object]
    refuses: tuple[type[Exception], ...]


def _lines(direction: str) -> tuple[str, ...]:
    found = []
    for path in sorted(FIXTURES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry.get("direction") == direction:
                found.append(json.dumps(entry["message"]))
    return tuple(found)


def _judge(text: str) -> None:
    """The checker names broken rules; it never fails."""
    checker = Checker()
    checker.take(Connect(1, STREAM))
    checker.take(Frame(2, "down", text.encode("utf-8", "replace")))


def _unframe(text: str) -> None:
    data = bytearray(frame(text.encode("utf-8", "replace")))
    if data:
        data[len(text) % len(data)] ^= 0x80
    list(unframe(data))


def _query(text: str) -> None:
    check(ast_json.parse(json.loads(text)), SCHEMA)


def _like(text: str) -> None:
    like(text[: len(text) // 2])(text)


SECRET = TokenRules(with_secret(b"a secret of thirty-two characters"))

TARGETS = (
    Target(
        "handshake",
        (STREAM, f"{STREAM}&lastWatermark=01&replicaVersion=01", "/changes/v0/stream?shardID=zero_0"),
        parse_target,
        (ProtocolError,),
    ),
    Target("watermark", ("01", "9ho9eu3gkbe", "9ho9eu3gkbe.9ho9eu83ix2"), watermark.validate, (ProtocolError,)),
    Target("acknowledgement", _lines("up"), codec.decode_upstream, (ProtocolError,)),
    Target("change-source message", _lines("down"), codec.decode_downstream, (ProtocolError,)),
    Target("rules", _lines("down"), _judge, ()),
    Target("frame", _lines("down")[:50], _unframe, (ProtocolError,)),
    Target("sync message", MESSAGES, messages.decode, (SyncError,)),
    Target(
        "sync handshake",
        ("/sync/v49/connect?clientID=c&clientGroupID=g&ts=1&lmid=0&wsid=w&baseCookie=&userID=u",),
        lambda text: handshake.parse_request(text, text),
        (SyncError, ProtocolError),
    ),
    Target("query", ASTS, _query, (ValueError,)),
    Target("pattern", ("%a%b_c", "a\\%b", "%%%%%", "ä_ß%"), _like, (LikePatternError,)),
    Target(
        "url",
        ("http://127.0.0.1:3000/api/query?a=1", "https://app.example/api/%2e%2e/admin"),
        lambda text: is_allowed(text, ["http://127.0.0.1:3000/api/*"]),
        (),
    ),
    Target("token", TOKENS, lambda text: decode(text, SECRET, "u", 0.0), (BadToken,)),
)
