"""SQLite's logarithmic row estimates: whole numbers of tenths of a doubling.

SQLite estimates in these coarse steps (10 is a factor of two, 33 about ten), so a model that wants its numbers must
round as it does, both on the way in and on the way out.
"""

from __future__ import annotations

_FRACTIONS = (0, 2, 3, 5, 6, 7, 8, 9)


def log_estimate(count: float) -> int:
    """The estimate standing for a row count; none and one are both 0."""
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
    """The row count an estimate stands for; negative estimates are fractions of a row."""
    shift = 0
    while log < 100:
        log += 10
        shift += 1
    eighths = log % 10
    eighths -= 2 if eighths >= 5 else 1 if eighths >= 1 else 0
    return float((eighths + 8) << (log // 10 - 3)) / 2.0**shift
