"""Cutting a log into shares of similar size, from the sizes of its transactions alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from changesource_sdk.changelog.log import Share


def cut(after: str, sizes: Iterable[tuple[str, int]], share_bytes: int) -> list[Share]:
    """Shares of (watermark, bytes) pairs in order; each ends with the transaction that fills it."""
    shares: list[Share] = []
    count = size = 0
    last = after
    for watermark, added in sizes:
        count, size, last = count + 1, size + added, watermark
        if size >= share_bytes:
            shares.append(Share(after, last, count, size))
            after, count, size = last, 0, 0
    if count:
        shares.append(Share(after, last, count, size))
    return shares
