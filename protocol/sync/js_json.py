"""JSON and string forms of values exactly as JavaScript writes them.

Query ids are hashes of JSON text produced by JavaScript clients, so this text must match to the byte: no spaces,
non-ASCII raw, numbers in JavaScript notation, integer-like keys first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_ARRAY_INDEX = 2**32 - 2


def stringify(value: Any) -> str:
    """`JSON.stringify(value)`: mappings, lists, tuples and scalars; numbers JSON cannot carry become null."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value) if math.isfinite(value) else "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_quoted(key)}:{stringify(value[key])}" for key in _key_order(value)) + "}"
    return "[" + ",".join([stringify(item) for item in value]) + "]"


def string_of(value: Any) -> str:
    """`String(value)` for a literal: lists join their members with commas."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ",".join(string_of(item) for item in value)
    return stringify(value)


def number_text(value: int | float) -> str:
    """A finite number in JavaScript's shortest notation."""
    if isinstance(value, int) and abs(value) <= 2**53:
        return str(value)
    value = float(value)
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    digits, exponent = _digits(abs(value))
    # `exponent` is the position of the decimal point, counted from the left of `digits`.
    if len(digits) <= exponent <= 21:
        return sign + digits + "0" * (exponent - len(digits))
    if 0 < exponent <= 21:
        return f"{sign}{digits[:exponent]}.{digits[exponent:]}"
    if -6 < exponent <= 0:
        return f"{sign}0.{'0' * -exponent}{digits}"
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{sign}{mantissa}e{exponent - 1:+d}"


def _digits(value: float) -> tuple[str, int]:
    mantissa, _, power = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    exponent = len(whole) + int(power or 0)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    return stripped.rstrip("0"), exponent - (len(digits) - len(stripped))


def _quoted(text: str) -> str:
    quoted = encode_basestring(text)
    if quoted.isascii():
        return quoted
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


def _key_order(value: Mapping[str, Any]) -> list[str]:
    numeric = [key for key in value if key.isdecimal() and str(int(key)) == key and int(key) <= _MAX_ARRAY_INDEX]
    if not numeric:
        return list(value)
    return sorted(numeric, key=int) + [key for key in value if key not in set(numeric)]
