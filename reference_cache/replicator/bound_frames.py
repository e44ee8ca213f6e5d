"""The begins and commits of transactions, recognised by their bytes.

With transactions of one row they are two of three messages. What a begin says besides its watermark is the same for a
whole connection, so it is validated once, by the codec, and then known by its bytes; a commit has nothing but its time.
Whatever is written in another way, or has more in it, is not recognised and takes the codec's way.

Contract: what is recognised is what the codec would have decoded, and its watermark has the right form.
"""

from __future__ import annotations

import re

from protocol import codec, watermark
from protocol.messages import Begin

_BEGIN = re.compile(rb'(\["begin",\{[^{}]*\},\{"commitWatermark":)"([0-9a-z.]+)"\}\]')
_COMMIT = re.compile(
    rb'\["commit",\{"tag":"commit"(?:,"commitTimeMs":([1-9][0-9]{0,15}(?:\.[0-9]{1,9})?))?\},'
    rb'\{"watermark":"([0-9a-z.]+)"\}\]'
)
_MAX_KNOWN = 64


class BoundFrames:
    """Recognises begins and commits. Remembers the beginnings of begins that it has seen."""

    def __init__(self) -> None:
        self._known: dict[bytes, Begin] = {}

    def begin(self, data: bytes) -> tuple[Begin, str] | None:
        """What a begin says, in a message that may have another watermark; and its watermark."""
        found = _BEGIN.fullmatch(data)
        if found is None:
            return None
        text = found[2].decode()
        if not watermark.is_valid(text):
            return None
        terms = self._known.get(found[1])
        if terms is None:
            message = codec.decode_downstream(data)
            assert isinstance(message, Begin)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            terms = self._known[found[1]] = message
        return terms, text

    def commit(self, data: bytes) -> tuple[str, float | None] | None:
        """The watermark and the time of a commit."""
        found = _COMMIT.fullmatch(data)
        if found is None:
            return None
        return found[2].decode(), None if found[1] is None else float(found[1])
