"""A summary of many durations, in the form that the inspector draws: `[compression, mean, weight, mean, weight, …]`.

Neighbouring values are merged into centroids, tightly at both ends and loosely in the middle, so extreme quantiles stay
exact (the t-digest of Dunning and Ertl, with its simplest scale function).
"""

from __future__ import annotations

COMPRESSION = 1000
_BUFFERED = 500


class Digest:
    """Values as sorted centroids. Invariant: the weights add up to the number of values added."""

    __slots__ = ("_buffer", "_centroids", "count")

    def __init__(self) -> None:
        # (mean, weight), ascending by mean; replaced by `_merge`.
        self._centroids: list[tuple[float, float]] = []
        # Values that are not merged yet, each with weight 1; at most `_BUFFERED`.
        self._buffer: list[tuple[float, float]] = []
        # How many values were added.
        self.count = 0

    def add(self, value: float) -> None:
        """Adds one value."""
        self._buffer.append((value, 1.0))
        self.count += 1
        if len(self._buffer) >= _BUFFERED:
            self._merge()

    def to_json(self) -> list[float]:
        """The digest as the inspector expects it."""
        self._merge()
        return [COMPRESSION, *(part for centroid in self._centroids for part in centroid)]

    def _merge(self) -> None:
        if not self._buffer:
            return
        merged: list[tuple[float, float]] = []
        before = 0.0
        for mean, weight in sorted(self._centroids + self._buffer):
            if merged and merged[-1][1] + weight <= self._largest(before):
                last_mean, last_weight = merged[-1]
                total = last_weight + weight
                merged[-1] = (last_mean + (mean - last_mean) * weight / total, total)
            else:
                before += merged[-1][1] if merged else 0.0
                merged.append((mean, weight))
        self._centroids, self._buffer = merged, []

    def _largest(self, before: float) -> float:
        """How heavy a centroid may be that has this much weight before it."""
        quantile = before / self.count
        return max(1.0, 4 * self.count * quantile * (1 - quantile) / COMPRESSION * 10)
