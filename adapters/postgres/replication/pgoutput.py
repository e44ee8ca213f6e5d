"""Decodes the messages of pgoutput, protocol version 1. Pure.

One payload is one message. Values stay text; `relation` knows the types. The server does not send a TOAST value that an
update did not change: it is `UNCHANGED` here.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final, Literal, NamedTuple, TypeAlias

from changesource_sdk import AdapterError

POSTGRES_EPOCH_MS = 946_684_800_000
"""Postgres counts microseconds from 1 January 2000."""


class _Unchanged(Enum):
    UNCHANGED = "unchanged"


UNCHANGED: Final = _Unchanged.UNCHANGED
Value: TypeAlias = str | Literal[_Unchanged.UNCHANGED] | None
Values: TypeAlias = list[Value]


class BeginMessage(NamedTuple):
    """The start of a transaction; `commit_lsn` is where its commit record starts, `xid` its number modulo 2^32."""

    commit_lsn: int
    commit_time_ms: float
    xid: int


class CommitMessage(NamedTuple):
    """The end of a transaction; `end_lsn` is the LSN after its commit record: the position."""

    commit_lsn: int
    end_lsn: int
    commit_time_ms: float


class RelationColumn(NamedTuple):
    """A column as the stream announces it; `is_key` says whether it is part of old keys."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool


class RelationMessage(NamedTuple):
    """The layout of a table for the messages that follow; `identity` is its `relreplident`."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Inserted(NamedTuple):
    oid: int
    new: Values


class Updated(NamedTuple):
    """`new` is the row after the update; `old` is the old key or row, if Postgres sends one."""

    oid: int
    old: Values | None
    new: Values


class Deleted(NamedTuple):
    """`old` has the key; its other columns may be missing."""

    oid: int
    old: Values


class Truncated(NamedTuple):
    oids: tuple[int, ...]


class LogicalMessage(NamedTuple):
    """A message written with `pg_logical_emit_message`."""

    transactional: bool
    prefix: str
    content: bytes


class Ignored(NamedTuple):
    """A message that is not needed: an origin, or the name of a type."""


Message: TypeAlias = (
    BeginMessage | CommitMessage | RelationMessage | Inserted | Updated | Deleted | Truncated | LogicalMessage | Ignored
)

_BEGIN = Struct(">qqI").unpack_from
_COMMIT = Struct(">xqqq").unpack_from
_OID = Struct(">I").unpack_from
_SHORT = Struct(">H").unpack_from
_LENGTH = Struct(">i").unpack_from
_ATTRIBUTE = Struct(">Ii").unpack_from
_MESSAGE = Struct(">?q").unpack_from
_TEXT, _NULL, _UNTOUCHED = b"tnu"
_OLD = b"KO"


def decode(data: bytes) -> Message:
    """Decode a payload. Raises `AdapterError` if it is not a message of protocol version 1."""
    match data[:1]:
        case b"I":
            return Inserted(_OID(data, 1)[0], _values(data, 6)[0])
        case b"U":
            return _updated(data)
        case b"D":
            return Deleted(_OID(data, 1)[0], _values(data, 6)[0])
        case b"B":
            lsn, time, xid = _BEGIN(data, 1)
            return BeginMessage(lsn, _milliseconds(time), xid)
        case b"C":
            lsn, end, time = _COMMIT(data, 1)
            return CommitMessage(lsn, end, _milliseconds(time))
        case b"R":
            return _relation(data)
        case b"T":
            return _truncated(data)
        case b"M":
            return _logical_message(data)
        case b"O" | b"Y":
            return Ignored()
    raise AdapterError(
        "unknown-replication-message",
        f"the server sent a replication message of kind {data[:1]!r}",
        fix="report it with the server's version; older servers may not send it",
    )


def _milliseconds(microseconds: int) -> float:
    return POSTGRES_EPOCH_MS + microseconds / 1000


def _values(data: bytes, at: int) -> tuple[Values, int]:
    """The values of a tuple, and the offset of their end."""
    (count,) = _SHORT(data, at)
    at += 2
    values: Values = []
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _LENGTH(data, at + 1)[0]
            values.append(data[start:at].decode())
        elif kind == _NULL:
            values.append(None)
            at += 1
        elif kind == _UNTOUCHED:
            values.append(UNCHANGED)
            at += 1
        else:
            raise AdapterError(
                "binary-value",
                "the server sent a value in binary form",
                fix="report it with the server's version: text was asked for",
            )
    return values, at


def _updated(data: bytes) -> Updated:
    (oid,) = _OID(data, 1)
    if data[5] in _OLD:
        old, at = _values(data, 6)
        return Updated(oid, old, _values(data, at + 1)[0])
    return Updated(oid, None, _values(data, 6)[0])


def _text(data: bytes, at: int) -> tuple[str, int]:
    """A text that ends with a zero byte, and the offset of the next field."""
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _relation(data: bytes) -> RelationMessage:
    (oid,) = _OID(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _SHORT(data, at + 1)
    at += 3
    columns: list[RelationColumn] = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        column, at = _text(data, at + 1)
        type_oid, modifier = _ATTRIBUTE(data, at)
        columns.append(RelationColumn(column, type_oid, modifier, is_key))
        at += 8
    return RelationMessage(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _truncated(data: bytes) -> Truncated:
    (count,) = _LENGTH(data, 1)
    return Truncated(tuple(_OID(data, 6 + 4 * number)[0] for number in range(count)))


def _logical_message(data: bytes) -> LogicalMessage:
    transactional, _ = _MESSAGE(data, 1)
    prefix, at = _text(data, 10)
    return LogicalMessage(transactional, prefix, data[at + 4 :])
