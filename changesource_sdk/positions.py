"""Positions: the adapter's cursor into the upstream, opaque to all other code.

A position is any JSON value: a sequence number, an LSN, a vector of offsets. The log stores it as text with the
transaction, compares it only for equality (plain integers also by order: they must increase), and passes the last one
to `Adapter.changes` after a restart. Equal positions have equal texts, in whatever order their keys are.
"""

from __future__ import annotations

import json
from typing import TypeAlias

import orjson

from changesource_sdk.errors import AdapterError

_EXACTLY = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
"""Refuse values that would be read back as another type: a date would come back as text and fail much later."""

Position: TypeAlias = "int | float | str | bool | list[Position] | dict[str, Position] | None"


def to_text(position: Position) -> str:
    """The canonical text of a position: sorted keys, no spaces, exact integers of any size."""
    if type(position) is int:
        return str(position)
    try:
        return orjson.dumps(position, option=_EXACTLY).decode()
    except TypeError:
        return _slow_text(position)


def _slow_text(position: Position) -> str:
    try:
        return json.dumps(position, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AdapterError(
            "position-not-json",
            f"a position of type {type(position).__name__} cannot be stored: {error}",
            fix="make positions of JSON values only: numbers, strings, lists and dicts with string keys",
        ) from error


def from_text(text: str) -> Position:
    """The reverse of `to_text` (tuples become lists)."""
    value: Position = json.loads(text)
    return value


def of_source(key: str, position: Position) -> str:
    """The text of a position in a log that sources share, where `key` is the source's; for "" it is `to_text`."""
    return to_text({key: position} if key else position)


def is_behind(position: Position, last: Position) -> bool:
    """Whether both are integers and `position` is not ahead of `last`: a replay, even of what was pruned."""
    return type(position) is int and type(last) is int and position <= last


def is_ahead(position: Position, last: Position) -> bool:
    """Whether both are integers and `position` is ahead of `last`: certainly new, without a lookup."""
    return type(position) is int and type(last) is int and position > last
