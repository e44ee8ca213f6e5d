"""Upstream positions: an adapter's own cursor, opaque to everyone else.

A position is any JSON value the adapter likes: a sequence number, an LSN, a vector of offsets. The log stores it as
text beside the transaction, compares it only for equality (plain integers also by order: they must increase), and hands
the last one back to `Adapter.changes` after a restart. Equal positions always have equal text, whatever the order
of their keys.
"""

from __future__ import annotations

import json
from typing import TypeAlias

import orjson

from changesource_sdk.errors import AdapterError

_EXACTLY = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
"""What would come back as something else is refused: a date, given to `changes` as a text, fails much later."""

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
    """The position back, as the adapter gave it (tuples come back as lists)."""
    value: Position = json.loads(text)
    return value


def is_behind(position: Position, last: Position) -> bool:
    """Whether both are integers and `position` is not ahead of `last`: a replay, even of what was pruned."""
    return type(position) is int and type(last) is int and position <= last


def is_ahead(position: Position, last: Position) -> bool:
    """Whether both are integers and `position` is ahead of `last`: certainly new, no look-up needed."""
    return type(position) is int and type(last) is int and position > last
