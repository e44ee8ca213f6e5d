"""When to make a seed: an interval as text, `30m`, `6h`, `1d`, or `never`. Pure."""

from __future__ import annotations

import re

_INTERVAL = re.compile(r"(\d+)\s*([smhd])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def interval_seconds(text: str) -> float | None:
    """Return the seconds of an interval; None for `never`. Raises `ValueError` for other texts."""
    if text.strip().lower() == "never":
        return None
    interval = _INTERVAL.fullmatch(text.strip())
    if interval is None or int(interval[1]) == 0:
        raise ValueError("must be an interval such as 30m, 6h or 1d, or never")
    return float(int(interval[1]) * _SECONDS[interval[2].lower()])


def interval_problem(text: str) -> str | None:
    """Say what is wrong with the text of an interval, if anything."""
    try:
        interval_seconds(text)
    except ValueError as error:
        return str(error)
    return None


def wait_seconds(newest_ms: float | None, every_s: float, now_ms: float) -> float:
    """Return how long to wait for the next seed; `newest_ms` is when the newest was begun, None if there is none."""
    return 0.0 if newest_ms is None else max(0.0, every_s - (now_ms - newest_ms) / 1000)
