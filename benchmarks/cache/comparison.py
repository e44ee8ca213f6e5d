"""Two figures side by side, and whether ours is as much better as it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def compared(figures: Mapping[str, float], *, at_least: float) -> dict[str, Any]:
    """Rates: ours must be `at_least` so many times the official."""
    times = figures["ours"] / figures["official"]
    rounded = {name: round(value, 1) for name, value in figures.items()}
    return {**rounded, "times": round(times, 1), "target": at_least, "met": times >= at_least}


def percentile(values: Sequence[float], share: float) -> float:
    """Of sorted values; the largest where there are few."""
    return values[min(len(values) - 1, int(len(values) * share))]
