"""What a group's view is made of, and the row patches from one state of it to another.

A view is a set of queries; a row is in it while one of them has it. The same set in many groups gives the same patches,
so they are worked out and encoded once per distinct set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from reference_cache.view_syncer.cvr.groups import Membership
from reference_cache.view_syncer.cvr.records import RecordStore
from reference_cache.view_syncer.cvr.versions import state_of
from reference_cache.view_syncer.pipelines.live_query import LiveQuery, Patch
from reference_cache.view_syncer.pipelines.row_keys import delete
from reference_cache.zql.engine.row_set import RowId

View: TypeAlias = frozenset[LiveQuery]


class StepPatches:
    """The row patches one transaction means to each view. Rows are encoded once per query."""

    def __init__(self, patches: dict[LiveQuery, list[Patch]]) -> None:
        self._patches = patches
        self._changed: dict[LiveQuery, set[RowId]] = {}
        self._encoded: dict[tuple[str, str, bool], bytes] = {}

    def of(self, view: View) -> Iterator[bytes]:
        """What a client with this view must be told, each row once."""
        told: set[RowId] = set()
        for live in view:
            for patch in self._patches.get(live, ()):
                if len(view) == 1:
                    yield self._encode(live, patch)
                elif patch.row_id not in told and self._is_news(patch, view):
                    told.add(patch.row_id)
                    yield self._encode(live, patch)

    def _is_news(self, patch: Patch, view: View) -> bool:
        """A row is no news if another query of the view has it, unchanged; a change that query tells by itself."""
        if patch.row is None:
            return not any(patch.row_id in live.held for live in view)
        return not any(patch.row_id in live.held and patch.row_id not in self._changes(live) for live in view)

    def _changes(self, live: LiveQuery) -> set[RowId]:
        found = self._changed.get(live)
        if found is None:
            found = self._changed[live] = {patch.row_id for patch in self._patches.get(live, ())}
        return found

    def _encode(self, live: LiveQuery, patch: Patch) -> bytes:
        table = patch.row_id[0]
        place = table, patch.key, patch.row is None
        found = self._encoded.get(place)
        if found is None:
            found = delete(table, patch.key) if patch.row is None else live.keys[table].put(patch.row)
            self._encoded[place] = found
        return found


def whole(view: View) -> Iterator[bytes]:
    """All rows of a view, for a client that has none."""
    seen: set[RowId] = set()
    for live in view:
        keys = live.keys
        for row_id, row in live.held.items():
            if row_id not in seen:
                if len(view) > 1:
                    seen.add(row_id)
                yield keys[row_id[0]].put(row)


class _Known:
    """A query of the view that the client has had since before its cookie, and what happened to its rows after it."""

    __slots__ = ("changed", "gone", "live")

    def __init__(self, live: LiveQuery, records: RecordStore, cookie: str) -> None:
        self.live = live
        self.changed: set[RowId] = set()
        self.gone: list[tuple[str, str]] = []
        for table, key, there in records.changed_after(live.id, cookie):
            if there:
                self.changed.add(live.keys.row_id(table, key))
            else:
                self.gone.append((table, key))

    def gave(self, row_id: RowId) -> bool:
        """Whether the client has the row from this query, as it is now."""
        return row_id in self.live.held and row_id not in self.changed


def catch_up(view: View, memberships: dict[int, Membership], records: RecordStore, cookie: str) -> Iterator[bytes]:
    """The rows that a client at this cookie lacks, has in an older state, or should not have any more.

    Queries of the view that the group has had since before the cookie tell by their records what changed after it. Of
    those that came later all rows are new, except what the client has from another. Queries that ended after the cookie
    leave rows behind that no query of the view has.
    """
    known = [_Known(live, records, cookie) for live in view if memberships[live.id].got <= cookie]
    new = [live for live in view if memberships[live.id].got > cookie]
    sent: set[RowId] = set()
    for live, row_id in _may_be_new(known, new):
        if row_id not in sent and not any(each.gave(row_id) for each in known):
            sent.add(row_id)
            yield live.keys[row_id[0]].put(live.held[row_id])
    ids = [live.id for live in view]
    for table, key in set(_may_be_gone(known, new, memberships, records, cookie)):
        if not records.is_there(ids, table, key):
            yield delete(table, key)


def _may_be_new(known: list[_Known], new: list[LiveQuery]) -> Iterator[tuple[LiveQuery, RowId]]:
    for live in new:
        for row_id, _ in live.held.items():
            yield live, row_id
    for each in known:
        for row_id in each.changed:
            yield each.live, row_id


def _may_be_gone(
    known: list[_Known], new: list[LiveQuery], memberships: dict[int, Membership], records: RecordStore, cookie: str
) -> Iterator[tuple[str, str]]:
    for each in known:
        yield from each.gone
    for live in new:
        if memberships[live.id].since <= cookie:  # had before, lost and had again: what left it meanwhile
            yield from records.gone_since(live.id, state_of(cookie))
    for membership in memberships.values():
        if membership.removed is not None and membership.removed > cookie and membership.since <= cookie:
            yield from records.rows_at(membership.query, state_of(cookie))
