"""Recognises begin and commit messages by their bytes, without decoding them.

With transactions of one row, they are two of three messages. Everything in a begin except its watermark is the same
for a whole connection, so the codec validates it once, and then its bytes are recognised; a commit has only its time.
Messages that are written differently or have more fields are not recognised; the caller decodes them with the codec.

Contract: a recognised message has the meaning that the codec would have found, and a valid watermark.
"""

from __future__ import annotations

import re

from protocol import codec, watermark
from protocol.messages import Begin

_BEGIN = re.compile(rb'(\["begin",\{[^{}]*\},\{"commitWatermark":)"([0-9a-z.]+)"\}\]')
# Times of up to 15 digits: the codec refuses integers above 2**53 - 1, which has 16.
_COMMIT = re.compile(
    rb'\["commit",\{"tag":"commit"(?:,"commitTimeMs":([1-9][0-9]{0,14}(?:\.[0-9]{1,9})?))?\},'
    rb'\{"watermark":"([0-9a-z.]+)"\}\]'
)
_MAX_KNOWN = 64


class BoundFrames:
    """Recognises begins and commits of one connection."""

    def __init__(self) -> None:
        # Bytes of a begin before its watermark -> the first message that began so; at most `_MAX_KNOWN`.
        self._known: dict[bytes, Begin] = {}

    def begin(self, data: bytes) -> tuple[Begin, str] | None:
        """A begin message that is equal except for its watermark, and the watermark; None if not recognised."""
        match = _BEGIN.fullmatch(data)
        if match is None:
            return None
        text = match[2].decode()
        if not watermark.is_valid(text):
            return None
        begin = self._known.get(match[1])
        if begin is None:
            message = codec.decode_downstream(data)
            assert isinstance(message, Begin)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            begin = self._known[match[1]] = message
        return begin, text

    def commit(self, data: bytes) -> tuple[str, float | None] | None:
        """Watermark and time (milliseconds) of a commit; None if not recognised."""
        match = _COMMIT.fullmatch(data)
        if match is None:
            return None
        return match[2].decode(), None if match[1] is None else float(match[1])
