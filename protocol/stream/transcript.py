"""A recorded stream: one JSON line per frame, as tests keep it and tools print it.

    {"connect": "/changes/v0/stream?appID=zero&shardNum=0"}      a consumer connects; later frames belong to it
    {"direction": "down", "message": ["begin", …]}               from the source
    {"direction": "up", "message": ["status", …]}                from the consumer
    {"direction": "down", "text": "…"}                           a frame whose text is not one JSON value

A transcript is what one consumer saw: its connections one after another, normally an initial sync, then live streams.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from protocol import values
from protocol.errors import CodecError

Direction = Literal["down", "up"]


@dataclass(frozen=True, slots=True)
class Connect:
    """A consumer connects with this request target."""

    line: int
    target: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One message as its text; `line` is its line in the transcript, from 1."""

    line: int
    direction: Direction
    text: bytes


Entry = Connect | Frame


def read(lines: Iterable[str | bytes]) -> Iterator[Entry]:
    """The entries of a transcript; blank lines are skipped."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _entry(number, values.loads(line))


def connect_line(target: str) -> bytes:
    """The line of a connection."""
    return values.dumps({"connect": target}) + b"\n"


def frame_line(direction: Direction, text: bytes | str) -> bytes:
    """The line of a frame, which need not be right."""
    try:
        return values.dumps({"direction": direction, "message": values.loads(text)}) + b"\n"
    except CodecError:
        broken = text if isinstance(text, str) else text.decode(errors="replace")
        return values.dumps({"direction": direction, "text": broken}) + b"\n"


def _entry(number: int, record: object) -> Entry:
    match record:
        case {"connect": str(target)}:
            return Connect(number, target)
        case {"direction": "down" | "up" as direction, "text": str(text)}:
            return Frame(number, direction, text.encode())
        case {"direction": "down" | "up" as direction, "message": message}:
            return Frame(number, direction, values.dumps(message))
        case _:
            raise CodecError(
                "neither a connection nor a frame", where=f"line {number}", fix="see protocol.stream.transcript"
            )
