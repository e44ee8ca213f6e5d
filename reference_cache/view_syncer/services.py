"""What all client groups share: the pipelines, the file of records, the application's query endpoint."""

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
from reference_cache.view_syncer.read_permissions import ReadPermissions, load_permissions

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Services:
    """Shared by all groups. Invariant: `whole_views` and `read_permissions` belong to the pipelines' version."""

    options: SyncerOptions
    transformer: Transformer
    file: CvrFile
    groups: GroupStore
    retention: Retention
    pipelines: Pipelines
    mutations: MutationTables
    pace: Pace
    status: SyncerStatus = field(default_factory=SyncerStatus)
    whole_views: WholeViews = field(default_factory=WholeViews)
    read_permissions: ReadPermissions | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that nobody waits for."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work of the view syncer failed", exc_info=error)

    def permissions(self) -> ReadPermissions:
        """The rules for ad hoc queries, as deployed at this version of the data."""
        if self.read_permissions is None:
            pipelines = self.pipelines
            self.read_permissions = load_permissions(pipelines.connection, pipelines.schema, self.options.app_id)
        return self.read_permissions

    async def whole_view(self, view: View) -> list[bytes]:
        """All rows of a view, in parts; the same for every group that starts with it. Call with the pipelines' lock."""
        known = self.whole_views.get(view)
        if known:
            return known
        found = await self.chunks(whole(view))
        self.whole_views.note(view, found)
        return found

    async def chunks(self, patches: Iterator[bytes]) -> list[bytes]:
        """Row patches in parts, worked out with pauses."""
        return row_chunks(await self.pace.collected(patches))
