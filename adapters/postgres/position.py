"""Positions of the stream: log sequence numbers (LSN), as integers.

A transaction's position is the end LSN of its commit record. The log stores it as a JSON number.
"""

from __future__ import annotations

from changesource_sdk import Position, position_lost


def lsn_of(position: Position) -> int:
    """Raises `ResyncRequired` for a position of another adapter."""
    if type(position) is not int:
        raise position_lost("the position was not made by this adapter")
    return position


def lsn_text(lsn: int) -> str:
    """An LSN as Postgres writes it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The reverse of `lsn_text`."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)
