"""A group's view: which queries it is made of, since when, and what a client at any cookie lacks of it.

The view is the union of its queries' rows. It moves to another set of queries in one step (`switch`), which is durable
before any client is poked, and `content_since` computes what has happened to it after any cookie. Call everything with
the pipelines' lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocol.watermark import EMPTY
from reference_cache.view_syncer.cvr.config import GroupEdit
from reference_cache.view_syncer.cvr.groups import Membership, StoredGroup
from reference_cache.view_syncer.cvr.versions import next_version, state_of
from reference_cache.view_syncer.mutation_data import Confirmed
from reference_cache.view_syncer.pipelines.distinct_query import KeyChoice, key_choice
from reference_cache.view_syncer.pipelines.live_query import LiveQuery
from reference_cache.view_syncer.pipelines.views import View, catch_up
from reference_cache.view_syncer.pokes import PokeContent
from reference_cache.view_syncer.services import Services

if TYPE_CHECKING:
    from reference_cache.view_syncer.client_group import ClientGroup


class GroupView:
    """What a group sees. Invariant: `queries` is the set of those in `running`, which has a user of each per hash; once
    the view is `active`, the memberships that have not ended are exactly theirs.

    Only an active view may be moved to a later version of the data: one whose queries do not run would skip what
    happened to their rows.
    """

    def __init__(self, stored: StoredGroup, services: Services) -> None:
        self._stored = stored
        self._config = stored.config
        self._services = services
        # Whether the queries run; set by `switch`, cleared by `stop`.
        self.active = False
        # The running queries by hash, and the set of them; replaced by `switch` and `stop`.
        self.running: dict[str, LiveQuery] = {}
        self.queries: View = frozenset()

    @property
    def choice(self) -> KeyChoice:
        """How the group's clients identify rows."""
        return key_choice(self._stored.client_schema, self._services.pipelines.engine_schema)

    @property
    def data_version(self) -> str:
        """The state version that the view is at."""
        return state_of(self._config.version)

    def resume(self, cookie: str | None) -> None:
        """Find the version of a group that was just loaded: rows and mutations have moved it since it was stored."""
        patched = self._services.groups.last_patch(self._config.group_id)
        confirmed = self.confirmed_since(self.data_version).version
        self._config.version = max(self._config.version, confirmed, patched, cookie or EMPTY)

    def stop(self, group: ClientGroup) -> None:
        """Stop all queries."""
        for live in self.queries:
            live.groups.discard(group)
        self._services.pipelines.release(self.running.values())
        self.active, self.running, self.queries = False, {}, frozenset()

    def switch(self, group: ClientGroup, started: dict[str, LiveQuery], dropped: Sequence[str], now: float) -> bool:
        """Move to another set of queries, durably; returns whether that made a new version."""
        services = self._services
        version = services.pipelines.version
        edit = GroupEdit(self._config, next_version(self._seen_version(), version))
        for hash in dropped:
            edit.drop(hash)
        ended = self._replace(group, started, dropped)
        self.active = True
        for hash in self.running:
            edit.get(hash)
        joined = self._join(edit.version)
        if joined or edit.changed:
            self._config.version = edit.version
            with services.file.transaction(version):
                services.groups.save(edit, now, joined)
        else:
            self._catch_up_with_data()
        services.pipelines.release(ended)
        return bool(joined or edit.changed)

    def _replace(self, group: ClientGroup, started: dict[str, LiveQuery], dropped: Sequence[str]) -> list[LiveQuery]:
        """Add the started queries and remove the dropped; returns those to release, once per hash."""
        ended = [live for hash, live in self.running.items() if hash in started or hash in dropped]
        running = {hash: live for hash, live in {**self.running, **started}.items() if hash not in dropped}
        before, self.running, self.queries = self.queries, running, frozenset(running.values())
        for live in before - self.queries:
            live.groups.discard(group)
        for live in self.queries - before:
            live.groups.add(group)
        return ended

    def _join(self, version: str) -> list[Membership]:
        """Make the memberships those of the queries; returns the ones that changed."""
        changed = []
        memberships = self._stored.memberships
        current = {live.id for live in self.queries}
        for live in self.queries:
            membership = memberships.get(live.id)
            if membership is None:
                membership = memberships[live.id] = Membership(live.id, version, version, live.epoch)
            elif membership.removed is not None or membership.epoch != live.epoch:
                membership.got, membership.epoch, membership.removed = version, live.epoch, None
            else:
                continue
            changed.append(membership)
        for each in memberships.values():
            if each.removed is None and each.query not in current:
                each.removed = version
                changed.append(each)
        return changed

    def _catch_up_with_data(self) -> None:
        """Move to the version of rows and mutations that have changed since the group was stored."""
        seen = self._seen_version()
        if seen > self._config.version and self.data_version == EMPTY:
            seen = self._services.pipelines.version  # a new group's versions are never older than itself
            with self._services.file.transaction(seen):
                pass
        self._config.version = seen

    def _seen_version(self) -> str:
        """The group's version, or that of newer changes of its queries' rows and its mutations."""
        confirmed = self.confirmed_since(self.data_version).version
        return max([self._config.version, confirmed, *(live.last_patch for live in self.queries)])

    async def content_since(self, cookie: str | None) -> PokeContent:
        """What a client at this cookie lacks."""
        if cookie == self._config.version:
            return PokeContent()
        confirmed = self.confirmed_since(EMPTY if cookie is None else state_of(cookie))
        return PokeContent(
            desired=self._config.desired_since(cookie),
            got=self._config.got_since(cookie),
            last_mutation_ids=confirmed.last_mutation_ids,
            mutations=confirmed.mutations,
            rows=await self._rows_since(cookie),
        )

    async def _rows_since(self, cookie: str | None) -> list[bytes]:
        services, memberships = self._services, self._stored.memberships
        if cookie is None or all(each.since > cookie for each in memberships.values()):
            return await services.whole_view(self.queries)
        return await services.chunks(catch_up(self.queries, memberships, services.pipelines.records, cookie))

    def confirmed_since(self, version: str) -> Confirmed:
        """The mutations confirmed, and results that came and went, after a version of the data."""
        services, group_id = self._services, self._config.group_id
        pipelines = services.pipelines
        confirmed = services.mutations.since(pipelines.connection, pipelines.schema, group_id, version)
        for client_id, mutation_id, dropped in services.groups.dropped_results(group_id, version):
            if (client_id, mutation_id) not in confirmed.results and version != EMPTY:
                confirmed.drop_result(client_id, mutation_id)
            confirmed.version = max(confirmed.version, dropped)
        return confirmed
