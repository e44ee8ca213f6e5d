"""SQLite's logarithmic row estimates (`LogEst`): ten times the binary logarithm, as an integer.

SQLite calculates in these coarse steps (10 is a factor of two, 33 about ten). To arrive at its numbers, both
conversions must round as SQLite does.
"""

from __future__ import annotations

_FRACTIONS = (0, 2, 3, 5, 6, 7, 8, 9)
"""Ten times the binary logarithm of 1, 9/8, 10/8 … 15/8, as SQLite's `sqlite3LogEst` rounds it."""


def log_estimate(count: float) -> int:
    """The estimate for a row count; 0 rows and 1 row are both 0."""
    whole = int(count)
    if whole < 2:
        return 0
    log = 40
    while whole < 8:
        log -= 10
        whole <<= 1
    while whole > 15:
        log += 10
        whole >>= 1
    return _FRACTIONS[whole & 7] + log - 10


def rows_of(log: int) -> float:
    """The row count of an estimate; negative estimates are fractions of a row."""
    shift = 0
    while log < 100:
        log += 10
        shift += 1
    eighths = log % 10
    eighths -= 2 if eighths >= 5 else 1 if eighths >= 1 else 0
    return float((eighths + 8) << (log // 10 - 3)) / 2.0**shift
