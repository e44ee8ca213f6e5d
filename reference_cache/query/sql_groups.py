"""Long chains of AND and OR as SQL that SQLite accepts."""

from __future__ import annotations

from collections.abc import Sequence

MOST_IN_CHAIN = 400
"""SQLite reads a chain as a tree as deep as the chain is long, and refuses trees deeper than 1,000."""


def chained(parts: Sequence[str], word: str) -> str:
    """The parts joined by a word (` AND ` or ` OR `), in parentheses; long chains as chains of chains."""
    while len(parts) > MOST_IN_CHAIN:
        starts = range(0, len(parts), MOST_IN_CHAIN)
        parts = [f"({word.join(parts[start : start + MOST_IN_CHAIN])})" for start in starts]
    return f"({word.join(parts)})"
