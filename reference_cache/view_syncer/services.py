"""What all client groups share: the pipelines, the CVR file, the application's query endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from reference_cache.view_syncer.api import SyncerOptions, SyncerStatus, Transformer
from reference_cache.view_syncer.cvr.file import CvrFile
from reference_cache.view_syncer.cvr.groups import GroupStore
from reference_cache.view_syncer.cvr.retention import Retention
from reference_cache.view_syncer.mutation_data import MutationTables
from reference_cache.view_syncer.pipelines.driver import Pipelines
from reference_cache.view_syncer.pipelines.pacing import Pace
from reference_cache.view_syncer.pipelines.views import View, whole
from reference_cache.view_syncer.pipelines.whole_views import WholeViews
from reference_cache.view_syncer.pokes import row_chunks
from reference_cache.view_syncer.read_permissions import DeployedPermissions, ReadPermissions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Shared by all groups. The parts stay the same; their state changes on the event loop only.

    Invariant: `whole_views` and `permissions` belong to the pipelines' version.
    """

    options: SyncerOptions
    transformer: Transformer
    file: CvrFile
    groups: GroupStore
    retention: Retention
    pipelines: Pipelines
    mutations: MutationTables
    permissions: DeployedPermissions
    pace: Pace
    status: SyncerStatus = field(default_factory=SyncerStatus)
    whole_views: WholeViews = field(default_factory=WholeViews)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """The running tasks of `background`; `ViewSyncer.stop` cancels them."""

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that nobody waits for; an exception in it is logged."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work of the view syncer failed", exc_info=error)

    def read_permissions(self) -> ReadPermissions:
        """The rules for ad hoc queries, as deployed at this version of the data."""
        return self.permissions.load(self.pipelines.connection, self.pipelines.schema)

    async def whole_view(self, view: View) -> list[bytes]:
        """All rows of a view, encoded, in parts; shared by the groups that start with it. Needs the pipelines' lock."""
        known = self.whole_views.get(view)
        if known:
            return known
        parts = await self.chunks(whole(view))
        self.whole_views.note(view, parts)
        return parts

    async def chunks(self, patches: Iterator[bytes]) -> list[bytes]:
        """Encoded row patches in parts, computed with pauses."""
        return row_chunks(await self.pace.collected(patches))
