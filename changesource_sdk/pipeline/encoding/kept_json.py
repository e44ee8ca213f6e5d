"""JSON that is kept in memory, at its own size.

orjson hands out the buffer that it wrote into, 4 KB at least, however short the text. For what is written or sent at
once that costs nothing; as a key among a million others it costs a hundred times the key.
"""

from __future__ import annotations

import orjson


def kept_json(value: object) -> bytes:
    """The JSON of a value, in no more bytes than it needs; what JSON does not know is written as its text."""
    return bytes(memoryview(orjson.dumps(value, default=str)))
