"""WebSocket text frames as bytes, so that a stored message is sent by writing it.

The change log and the snapshot spool keep messages already framed, as a server sends them: final, unmasked, text.
Serving is then `transport.write(chunk)` with no work per message. A chunk must end at a frame boundary; the connection
may put its own control frames between two chunks.
"""

from collections.abc import Iterator

from protocol.errors import FramingError

_FINAL_TEXT = 0x81
_LENGTH_16 = 126
_LENGTH_64 = 127
_MAX_16 = 0xFFFF


def frame(payload: bytes) -> bytes:
    """One message as a final, unmasked text frame."""
    size = len(payload)
    if size < _LENGTH_16:
        return bytes((_FINAL_TEXT, size)) + payload
    if size <= _MAX_16:
        return bytes((_FINAL_TEXT, _LENGTH_16)) + size.to_bytes(2, "big") + payload
    return bytes((_FINAL_TEXT, _LENGTH_64)) + size.to_bytes(8, "big") + payload


def header_size(payload_size: int) -> int:
    """How many bytes `frame` puts before a payload of this size."""
    if payload_size < _LENGTH_16:
        return 2
    return 4 if payload_size <= _MAX_16 else 10


def first_frame_end(data: bytes) -> int:
    """Where the first of some whole frames ends."""
    return _payload_range(memoryview(data), 0)[1]


def unframe(data: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """The payloads of a sequence of whole frames written by `frame`; anything else is a `FramingError`."""
    view = memoryview(data)
    offset = 0
    while offset < len(view):
        start, end = _payload_range(view, offset)
        yield bytes(view[start:end])
        offset = end


def _payload_range(view: memoryview, offset: int) -> tuple[int, int]:
    header = bytes(view[offset : offset + 10])
    if header[0] != _FINAL_TEXT:
        raise FramingError(f"not a final text frame (first byte 0x{header[0]:02x})", where=f"byte {offset}")
    start, size = _read_length(header, offset)
    end = offset + start + size
    if end > len(view):
        raise FramingError(f"the last frame lacks {end - len(view)} bytes", where=f"byte {offset}")
    return offset + start, end


def _read_length(header: bytes, offset: int) -> tuple[int, int]:
    short = header[1] if len(header) > 1 else _LENGTH_16
    if short < _LENGTH_16:
        return 2, short
    if short > _LENGTH_64:
        raise FramingError("a masked frame; only what a server sends is read here", where=f"byte {offset}")
    start = 4 if short == _LENGTH_16 else 10
    if len(header) < start:
        raise FramingError("the last frame ends within its header", where=f"byte {offset}")
    return start, int.from_bytes(header[2:start], "big")
