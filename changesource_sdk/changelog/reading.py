"""Queries of a log that are the same for every backend."""

from __future__ import annotations

from collections.abc import Iterator

from changesource_sdk import positions
from changesource_sdk.changelog.log import Log, LogRange
from changesource_sdk.positions import Position

_PAGE = 10_000
"""Transactions whose sizes are in memory at a time."""


def has(log: Log, watermark: str) -> bool:
    """Whether a transaction with exactly this watermark is in the log."""
    return bool(log.sizes(watermark, watermark, 1))


def knows(log: Log, position: Position, key: str = "") -> bool:
    """Whether a transaction or snapshot with this position, qualified by `key`, is in the log."""
    return bool(log.known([positions.of_source(key, position)]))


def ranges(log: Log, after: str, through: str, range_bytes: int) -> list[LogRange]:
    """Divide the transactions above `after` up to `through` into ranges of about `range_bytes`, by their sizes alone.

    Each range ends with the transaction that reaches the size.
    """
    made: list[LogRange] = []
    count = size = 0
    last = after
    for watermark, added in _sizes_after(log, after, through):
        count, size, last = count + 1, size + added, watermark
        if size >= range_bytes:
            made.append(LogRange(after, last, count, size))
            after, count, size = last, 0, 0
    if count:
        made.append(LogRange(after, last, count, size))
    return made


def _sizes_after(log: Log, after: str, through: str) -> Iterator[tuple[str, int]]:
    """Yield all of `Log.sizes`, page by page. A page starts with the last one of the page before, which is skipped."""
    while True:
        page = log.sizes(after, through, _PAGE)
        yield from ((watermark, size) for watermark, size in page if watermark > after)
        if len(page) < _PAGE:
            return
        after = page[-1][0]
