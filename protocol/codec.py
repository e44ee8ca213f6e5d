"""Messages to bytes and back, with errors that name the field.

The border of the protocol: what `decode_*` returns is valid in shape (an unknown field passes, an unknown tag or a
wrong shape is a `CodecError`), so code behind it does not check again. `session` decides whether a message is allowed
at this point of the stream.
"""

from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from protocol import values
from protocol.changes import Change
from protocol.errors import CodecError
from protocol.framing import unframe
from protocol.messages import (
    Ack,
    AckRequested,
    Begin,
    Commit,
    Data,
    Downstream,
    Message,
    ResetRequired,
    Rollback,
    Status,
    StatusAck,
    Upstream,
    wire_tag,
)
from protocol.specs import FROM_WIRE
from protocol.validation import Location, first_mistake

_M = TypeVar("_M")

MAX_MESSAGE_BYTES = 100 * 1024 * 1024
"""The largest message that zero-cache accepts."""

MAX_UPSTREAM_BYTES = 64 * 1024
"""Acks are tiny; a larger message is no ack."""

AnyDownstream = Begin | Data | Commit | Rollback | Status | ResetRequired | AckRequested
AnyUpstream = StatusAck | Ack

_ON_FIRST_USE = ConfigDict(defer_build=True)
_DOWNSTREAM: TypeAdapter[AnyDownstream] = TypeAdapter(Downstream, config=_ON_FIRST_USE)
_UPSTREAM: TypeAdapter[AnyUpstream] = TypeAdapter(Upstream, config=_ON_FIRST_USE)
_DOWNSTREAM_NAMES = ("begin", "data", "commit", "rollback", "status", "control")
_UPSTREAM_NAMES = ("status", "ack")
_THIRD_ELEMENT = {"begin": "commitWatermark", "commit": "watermark", "status": "watermark"}


def encode(message: Message) -> bytes:
    """The JSON text of a message."""
    try:
        return values.dumps(message.to_wire())
    except CodecError as error:
        raise CodecError(error.message, where=error.where or message.name, fix=error.fix) from None


def decode_downstream(data: bytes | str, *, max_bytes: int = MAX_MESSAGE_BYTES) -> AnyDownstream:
    """A message from the source."""
    return parse_downstream(_parse(data, max_bytes))


def decode_changes(frames: bytes) -> list[Change]:
    """The changes in a sequence of whole frames, as log and spool store them; other messages are left out."""
    messages = map(decode_downstream, unframe(frames))
    return [message.change for message in messages if isinstance(message, Data)]


def decode_upstream(data: bytes | str, *, max_bytes: int = MAX_UPSTREAM_BYTES) -> AnyUpstream:
    """A message from the consumer."""
    return parse_upstream(_parse(data, max_bytes))


def parse_downstream(wire: object) -> AnyDownstream:
    """A message from the source, from its JSON value."""
    return _validate(_DOWNSTREAM, wire, _DOWNSTREAM_NAMES)


def parse_upstream(wire: object) -> AnyUpstream:
    """A message from the consumer, from its JSON value."""
    return _validate(_UPSTREAM, wire, _UPSTREAM_NAMES)


def _parse(data: bytes | str, max_bytes: int) -> object:
    size = len(data) if isinstance(data, bytes) else len(data.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise CodecError(f"a message of {size} bytes, more than {max_bytes}", fix="split it into smaller messages")
    return values.loads(data)


def _validate(adapter: TypeAdapter[_M], wire: object, names: tuple[str, ...]) -> _M:
    _check_name(wire, names)
    try:
        return adapter.validate_python(wire, context=FROM_WIRE)
    except ValidationError as error:
        location, message = first_mistake(error)
        raise CodecError(message, where=_path(location, wire)) from None


def _check_name(wire: object, names: tuple[str, ...]) -> None:
    if not isinstance(wire, list):
        raise CodecError("a message is a JSON array", fix="send one array per message")
    if wire and isinstance(wire[0], list):
        raise CodecError("several messages in one frame", where="[0]", fix="send one message per frame")
    if not wire or wire[0] not in names:
        name = repr(wire[0]) if wire else "nothing"
        raise CodecError(f"unknown message {name}", where="[0]", fix=f"known are {', '.join(names)}")


def _path(location: Location, wire: object) -> str:
    """Where in the array a field is; the location also names union members, which are not in the JSON."""
    name = str(location[0] if location else wire_tag(wire)).partition(":")[0]
    if name == "data":
        return _join("data[1]", location[3:])
    if len(location) < 2:
        return name
    element = 2 if _THIRD_ELEMENT.get(name) == location[1] else 1
    return _join(f"{name}[{element}]", location[1:])


def _join(start: str, location: Location) -> str:
    return start + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
