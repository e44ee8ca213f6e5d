"""Views as they are sent to a client that has nothing yet, encoded, for all groups that start with the same view.

What is kept is bounded by its bytes, and forgotten with the queries it is made of: an entry would keep them, and all
their rows, in memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from reference_cache.view_syncer.pipelines.live_query import LiveQuery
from reference_cache.view_syncer.pipelines.views import View

MOST_VIEWS = 64
LARGEST_VIEW = 4 << 20
MOST_BYTES = 64 << 20
"""How many views are kept, how large one may be, and all of them together."""


class WholeViews:
    """Encoded views. Invariant: all belong to the pipelines' version and consist of running queries; `_bytes` is their
    size. A view that was asked for once has an empty entry: most views are one group's own and are never kept."""

    def __init__(self) -> None:
        self._views: dict[View, list[bytes]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._views)

    def get(self, view: View) -> list[bytes] | None:
        """The view's parts; empty if it was asked for once, None if never."""
        return self._views.get(view)

    def note(self, view: View, parts: list[bytes]) -> None:
        """A view was encoded: keep it from the second time on."""
        known = self._views.get(view)
        kept = parts if known is not None and _size(parts) <= LARGEST_VIEW else []
        self._drop(view)
        while self._views and (len(self._views) >= MOST_VIEWS or self._bytes + _size(kept) > MOST_BYTES):
            self._drop(next(iter(self._views)))
        self._views[view] = kept
        self._bytes += _size(kept)

    def forget(self, ended: Iterable[LiveQuery]) -> None:
        """Forget the views that these queries were part of."""
        gone = set(ended)
        for view in [view for view in self._views if not gone.isdisjoint(view)]:
            self._drop(view)

    def clear(self) -> None:
        """Forget all: the data has moved on."""
        self._views.clear()
        self._bytes = 0

    def _drop(self, view: View) -> None:
        self._bytes -= _size(self._views.pop(view, []))


def _size(parts: list[bytes]) -> int:
    return sum(map(len, parts))
