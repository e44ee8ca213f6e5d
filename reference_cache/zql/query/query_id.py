"""Query ids: the hash that identifies a query between client and server.

Two 32-bit xxHash values of the text, with seeds 0 and 1, as one 64-bit number in base 36. The text is the
JSON of a query's normal form, or the name and arguments of a named query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xxhash import xxh32_intdigest

from protocol.sync.ast import Query
from protocol.sync.ast_json import to_json
from protocol.sync.js_json import stringify
from protocol.sync.normal_form import normalize

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def query_id(query: Query) -> str:
    """The id of a query that is sent as an AST."""
    return text_hash(normal_text(query))


def named_query_id(name: str, arguments: Sequence[Any]) -> str:
    """The id of a named query called with JSON arguments."""
    return text_hash(f"{name}:{stringify(arguments)}")


def normal_text(query: Query) -> str:
    """The JSON text of the query's normal form."""
    return stringify(to_json(normalize(query)))


def text_hash(text: str) -> str:
    """The 64-bit hash of a text, in base 36."""
    data = text.encode("utf-8", "surrogatepass")
    return _base36((xxh32_intdigest(data, 0) << 32) + xxh32_intdigest(data, 1))


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
