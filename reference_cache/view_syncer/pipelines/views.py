"""Row patches for clients: after a step, for a client without rows, and for a client at any cookie.

A view is a set of queries; a row is in it while one of them has it. Groups with the same set get the same patches, so
these are computed and encoded once per distinct set. Call everything with the pipelines' lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from reference_cache.view_syncer.cvr.groups import Membership
from reference_cache.view_syncer.cvr.records import RecordStore, RowPatch
from reference_cache.view_syncer.cvr.versions import state_of
from reference_cache.view_syncer.pipelines.live_query import LiveQuery
from reference_cache.view_syncer.pipelines.row_keys import delete
from reference_cache.zql.engine.row_set import RowId

View: TypeAlias = frozenset[LiveQuery]


class StepPatches:
    """The row patches of one step, encoded for each view. Every row is encoded once, however many views have it."""

    def __init__(self, patches: dict[LiveQuery, list[RowPatch]]) -> None:
        self._patches = patches
        # Cache: the rows that changed in a query; filled by `_changes`.
        self._changed: dict[LiveQuery, set[RowId]] = {}
        # Cache: encoded patches by table, key and whether the row was removed; filled by `_encode`.
        self._encoded: dict[tuple[str, str, bool], bytes] = {}

    def of(self, view: View) -> Iterator[bytes]:
        """The encoded patches for clients that had this view before the step, at most one for each row."""
        sent: set[RowId] = set()
        for live in view:
            for patch in self._patches.get(live, ()):
                if len(view) == 1:
                    yield self._encode(live, patch)
                elif patch.row_id not in sent and self._changes_view(patch, view):
                    sent.add(patch.row_id)
                    yield self._encode(live, patch)

    def _changes_view(self, patch: RowPatch, view: View) -> bool:
        """Whether a patch of one query changes the view; not if another query has the row and did not change it."""
        if patch.row is None:
            return not any(patch.row_id in live.rows for live in view)
        return not any(patch.row_id in live.rows and patch.row_id not in self._changes(live) for live in view)

    def _changes(self, live: LiveQuery) -> set[RowId]:
        changed = self._changed.get(live)
        if changed is None:
            changed = self._changed[live] = {patch.row_id for patch in self._patches.get(live, ())}
        return changed

    def _encode(self, live: LiveQuery, patch: RowPatch) -> bytes:
        table = patch.row_id[0]
        cache_key = table, patch.key, patch.row is None
        encoded = self._encoded.get(cache_key)
        if encoded is None:
            encoded = delete(table, patch.key) if patch.row is None else live.keys[table].put(patch.row)
            self._encoded[cache_key] = encoded
        return encoded


def whole(view: View) -> Iterator[bytes]:
    """All rows of a view, encoded, for a client that has none."""
    seen: set[RowId] = set()
    for live in view:
        keys = live.keys
        for row_id, row in live.rows.items():
            if row_id not in seen:
                if len(view) > 1:
                    seen.add(row_id)
                yield keys[row_id[0]].put(row)


class _Known:
    """A query that the client had at its cookie, with the rows that changed in it or left it after that cookie."""

    __slots__ = ("changed", "left", "live")

    def __init__(self, live: LiveQuery, records: RecordStore, cookie: str) -> None:
        self.live = live
        self.changed: set[RowId] = set()
        self.left: list[tuple[str, str]] = []
        for table, key, there in records.changed_after(live.id, cookie):
            if there:
                self.changed.add(live.keys.row_id(table, key))
            else:
                self.left.append((table, key))

    def has_sent(self, row_id: RowId) -> bool:
        """Whether the client has the row from this query, with its present values."""
        return row_id in self.live.rows and row_id not in self.changed


def catch_up(view: View, memberships: dict[int, Membership], records: RecordStore, cookie: str) -> Iterator[bytes]:
    """Encoded patches for the rows that a client at this cookie lacks, has with older values, or must remove.

    Queries that the group had at the cookie: their records say what changed after it. Queries that it got later: all of
    their rows are new, except those that the client has from another query. Queries that ended after the cookie: the
    client may have rows of them that no query of the view has.
    """
    known = [_Known(live, records, cookie) for live in view if memberships[live.id].got <= cookie]
    new = [live for live in view if memberships[live.id].got > cookie]
    sent: set[RowId] = set()
    for live, row_id in _may_be_new(known, new):
        if row_id not in sent and not any(each.has_sent(row_id) for each in known):
            sent.add(row_id)
            yield live.keys[row_id[0]].put(live.rows[row_id])
    ids = [live.id for live in view]
    for table, key in set(_may_have_left(known, new, memberships, records, cookie)):
        if not records.is_there(ids, table, key):
            yield delete(table, key)


def _may_be_new(known: list[_Known], new: list[LiveQuery]) -> Iterator[tuple[LiveQuery, RowId]]:
    for live in new:
        for row_id, _ in live.rows.items():
            yield live, row_id
    for each in known:
        for row_id in each.changed:
            yield each.live, row_id


def _may_have_left(
    known: list[_Known], new: list[LiveQuery], memberships: dict[int, Membership], records: RecordStore, cookie: str
) -> Iterator[tuple[str, str]]:
    for each in known:
        yield from each.left
    for live in new:
        if memberships[live.id].since <= cookie:  # the group had it, lost it and got it again
            yield from records.gone_since(live.id, state_of(cookie))
    for membership in memberships.values():
        if membership.removed is not None and membership.removed > cookie and membership.since <= cookie:
            yield from records.rows_at(membership.query, state_of(cookie))
