"""Whether a frame holds one well-formed message; the rules that need nothing but the frame itself."""

import json

from protocol import codec, values
from protocol.codec import AnyDownstream
from protocol.errors import CodecError
from protocol.stream.order import Problem

_POSITION = {"begin": "commitWatermark", "commit": "watermark"}


def read_downstream(text: bytes, max_bytes: int) -> tuple[list[Problem], AnyDownstream | None]:
    """The broken rules of a frame, and its message if it can still be read."""
    if len(text) > max_bytes:
        return [Problem("size", f"{len(text)} bytes, more than {max_bytes}")], None
    try:
        wire = values.loads(text)
    except CodecError as error:
        return [_why_not_json(text, error)], None
    if isinstance(wire, list) and wire and isinstance(wire[0], list):
        return [Problem("one-message", f"an array of {len(wire)} messages")], None
    return _read_message(wire)


def _read_message(wire: object) -> tuple[list[Problem], AnyDownstream | None]:
    problems = []
    match wire:
        case ["begin" | "commit" as name, dict() as payload, dict() as third] if extra := third.keys() - {
            _POSITION[name]
        }:
            problems.append(Problem("third-element", f"{name} holds also {', '.join(sorted(extra))}"))
            wire = [name, payload, {key: value for key, value in third.items() if key not in extra}]
        case _:
            pass
    try:
        return problems, codec.parse_downstream(wire)
    except CodecError as error:
        return [*problems, Problem("shape", str(error))], None


def _why_not_json(text: bytes, error: CodecError) -> Problem:
    constants: list[str] = []
    try:
        characters = text.decode().strip()
        _, end = json.JSONDecoder(parse_constant=constants.append).raw_decode(characters)
    except (ValueError, RecursionError):
        return Problem("json", error.message)
    if characters[end:].strip():
        return Problem("one-message", "several JSON values in one frame")
    if "\\ud" in characters.lower():
        return Problem("surrogate", "half of a surrogate pair in a text")
    return Problem("nan", f"{constants[0] if constants else 'a number beyond every float'} is no JSON number")
