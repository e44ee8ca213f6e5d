"""Periodic work of the view syncer: stop abandoned groups, bound the CVR file, give freed memory back.

One task does it, on the event loop; the allocator's trim runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time

from reference_cache.memory import Reclaimer
from reference_cache.view_syncer.client_connection import to_the_end
from reference_cache.view_syncer.client_group import ClientGroup
from reference_cache.view_syncer.services import Services

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two checks for groups whose queries are to be stopped."""

AT_ONCE = 100
"""Groups and queries deleted in one transaction when the CVR file is full."""

PURGING = 600.0
"""Seconds between two purges of groups and tombstones that are too old."""


class Housekeeping:
    """Works on the view syncer's own dictionary of the groups in use, by id: stopped groups are removed from it."""

    def __init__(self, services: Services, groups: dict[str, ClientGroup]) -> None:
        self._services = services
        self._groups = groups
        self._reclaimer = Reclaimer()

    async def run(self) -> None:
        """Do all of it periodically, until the task is cancelled."""
        file, linger = self._services.file, self._services.options.linger
        purged = time.monotonic()
        while True:
            await asyncio.sleep(min(INTERVAL, linger or INTERVAL))
            await to_the_end(self.stop_abandoned())
            file.tidy()
            if self._reclaimer.is_due():
                file.release_memory()
                await asyncio.to_thread(self._reclaimer.give_back)
            if not file.measure():
                self.make_room()
            if time.monotonic() - purged > PURGING:
                purged = time.monotonic()
                self.purge()

    async def stop_abandoned(self) -> None:
        """Stop the queries of groups whose last client disconnected longer than `linger` ago. Takes both locks."""
        options = self._services.options
        latest = options.clock() - options.linger
        for group_id, group in list(self._groups.items()):
            if group.is_abandoned(latest):
                async with group.lock, self._services.pipelines.lock:
                    # A client may have connected while this waited for the locks.
                    if group.is_abandoned(latest):
                        group.stop()
                        self._groups.pop(group_id, None)
                        self._reclaimer.freed()

    def make_room(self) -> int:
        """Delete some unused groups, longest unused first, because the CVR file is full; returns how many."""
        services = self._services
        idle = [each for each in services.groups.idle_since(time.time()) if each not in self._groups][:AT_ONCE]
        with services.file.transaction():
            for group_id in idle:
                services.groups.delete(group_id)
            forgotten = services.pipelines.records.forget_unused(services.pipelines.recorded_ids(), AT_ONCE)
        if idle or forgotten:
            log.warning("client records take too much room: %d unused groups forgotten", len(idle))
        return len(idle)

    def purge(self) -> int:
        """Delete groups and tombstones that are older than `forget_groups_after`; returns how many groups."""
        services = self._services
        now = time.time()
        long_ago = now - services.options.forget_groups_after
        idle = services.groups.idle_since(long_ago)
        with services.file.transaction():
            services.retention.note_age(now)
            services.retention.forget(services.retention.version_at(long_ago), self._groups.keys())
            gone = [group_id for group_id in idle if group_id not in self._groups]
            for group_id in gone:
                services.groups.delete(group_id)
            services.pipelines.records.forget_unused(services.pipelines.recorded_ids())
        return len(gone)
