"""JSON text and Python values, exactly: integers keep every digit, and what JSON cannot express is refused.

orjson does the work. It has three gaps that matter here and are closed: it reads integers beyond 64 bits as floats,
refuses to write them, and writes NaN and Infinity as null. More digits than Python converts (4300) are an error.
"""

import json
import math
from typing import NoReturn

import orjson

from protocol.errors import CodecError

_DIGITS_ALIKE = bytes(ord("0") if chr(code).isdecimal() else code for code in range(128)) + bytes(128)
_LONG, _LONG_NEGATIVE = b"0" * 20, b"-" + b"0" * 19
"""With all digits alike, where an integer may not fit what orjson reads exactly: from -2^63 up to 2^64. Also finds long
fractions and texts, which merely take the slower path."""

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS


def dumps(value: object) -> bytes:
    """Compact JSON of a value made of dict, list, str, int, float, bool and None; else `CodecError`."""
    try:
        text = orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError:
        return _dumps_exactly(value)
    if b"null" in text:
        _refuse_non_finite(value)
    return text


def loads(text: bytes | str) -> object:
    """The value of a JSON text; else `CodecError`."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        return _loads_exactly(data) if _has_long_digits(data) else orjson.loads(data)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}", fix="send one JSON array per message, UTF-8, without NaN") from None


def _has_long_digits(data: bytes) -> bool:
    alike = data.translate(_DIGITS_ALIKE)
    return _LONG in alike or _LONG_NEGATIVE in alike


def _dumps_exactly(value: object) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"cannot be written as JSON: {error}", fix="convert the value first") from None


def _loads_exactly(data: bytes) -> object:
    return json.loads(data.decode(), parse_float=_finite, parse_constant=_not_a_number)


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _not_a_number(digits)


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_non_finite(value: object) -> None:
    """orjson writes NaN as null, so only a text that holds null can hide one."""
    pending = [value]
    while pending:
        match pending.pop():
            case dict() as members:
                pending.extend(members.values())
            case list() | tuple() as items:
                pending.extend(items)
            case float() as number if not math.isfinite(number):
                raise CodecError(f"cannot be written as JSON: {number}", fix="send null or a finite number")
