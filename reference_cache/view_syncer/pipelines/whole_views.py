"""A cache of encoded views, as sent to clients that have no rows yet, for all groups that start with the same view.

It is bounded in bytes, and an entry is dropped when one of its queries ends: it would keep the query, and all its rows,
in memory.
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
    """Encoded views. Invariant: all belong to the pipelines' version and consist of running queries. A view that was
    needed once has an empty entry: most views are one group's own and are never kept.

    Used under the pipelines' lock.
    """

    def __init__(self) -> None:
        # In the order of insertion, which is the order of eviction.
        self._views: dict[View, list[bytes]] = {}
        # The size of all parts in `_views`.
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._views)

    def get(self, view: View) -> list[bytes] | None:
        """The view's parts; empty if it was needed once before, None if never."""
        return self._views.get(view)

    def note(self, view: View, parts: list[bytes]) -> None:
        """Note that a view was encoded, and keep it from the second time on."""
        known = self._views.get(view)
        kept = parts if known is not None and _size(parts) <= LARGEST_VIEW else []
        self._drop(view)
        while self._views and (len(self._views) >= MOST_VIEWS or self._bytes + _size(kept) > MOST_BYTES):
            self._drop(next(iter(self._views)))
        self._views[view] = kept
        self._bytes += _size(kept)

    def forget(self, ended: Iterable[LiveQuery]) -> None:
        """Drop the views that these queries were part of."""
        gone = set(ended)
        for view in [view for view in self._views if not gone.isdisjoint(view)]:
            self._drop(view)

    def clear(self) -> None:
        """Drop all: the rows have changed."""
        self._views.clear()
        self._bytes = 0

    def _drop(self, view: View) -> None:
        self._bytes -= _size(self._views.pop(view, []))


def _size(parts: list[bytes]) -> int:
    return sum(map(len, parts))
