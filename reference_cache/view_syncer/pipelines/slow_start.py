"""Starts slow queries: hydrate aside, catch up with the version of the others, and move into the common engine.

One hydration serves all groups that open the query meanwhile. Its rows are recorded before it is moved, so that the
lock is held only for what has changed since.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from protocol.sync.ast import Query
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.replica.errors import ChangesForgotten
from reference_cache.view_syncer.api import SyncerOptions
from reference_cache.view_syncer.cvr.records import RowPatch
from reference_cache.view_syncer.pipelines.aside import WAITING, Aside, Moved, TooExpensive, Turns, Wanted, slot
from reference_cache.view_syncer.pipelines.distinct_query import KeyChoice
from reference_cache.view_syncer.pipelines.live_query import LiveQuery
from reference_cache.view_syncer.pipelines.pacing import Pace
from reference_cache.view_syncer.pipelines.query_rows import TooManyRows
from reference_cache.view_syncer.pipelines.recording import Recording
from reference_cache.zql.engine.engine import Engine

if TYPE_CHECKING:
    from reference_cache.view_syncer.pipelines.driver import Pipelines

T = TypeVar("T")

ATTEMPTS = 3
"""How often a hydration is started, if tables are truncated or altered while it runs."""


class Starting:
    """A query that is being hydrated aside. Used on the event loop only."""

    def __init__(self) -> None:
        # One entry for each call of `SlowStart.open` that waits for it.
        self.wanted: list[Wanted] = []
        # Set right after construction, by `SlowStart.open`.
        self.task: asyncio.Task[LiveQuery]
        # Set during an attempt.
        self.aside: Aside | None = None
        # The query's number in the CVR file, 0 before it has one; keeps its records from being purged.
        self.recorded_id = 0

    def is_wanted(self) -> bool:
        return any(wanted() for wanted in self.wanted)


class SlowStart:
    """The queries that are being hydrated aside, by key."""

    def __init__(self, pipelines: Pipelines, recording: Recording, options: SyncerOptions, pace: Pace) -> None:
        self._pipelines = pipelines
        self._recording = recording
        self._pace = pace
        self._turns = Turns(options.time_slice)
        # Written by `open`, and by `_start` when it ends.
        self._starting: dict[str, Starting] = {}

    def is_starting(self, key: str) -> bool:
        return key in self._starting

    @property
    def oldest_version(self) -> str | None:
        """The oldest state version that a hydration aside reads; None if there is none."""
        return min((each.aside.version for each in self._starting.values() if each.aside), default=None)

    def recorded_ids(self) -> set[int]:
        """The numbers of the queries that have records already."""
        return {each.recorded_id for each in self._starting.values() if each.recorded_id}

    def stop(self) -> None:
        """Stop all hydrations at their next pause, and refuse new ones."""
        self._turns.stopping = True

    async def open(self, key: str, query: Query, choice: KeyChoice, wanted: Wanted) -> LiveQuery:
        """Start the query or join its start; returns it running, with one more user. Call without the lock.

        Raises `SyncError`, and what the query's pipeline raises.
        """
        starting = self._starting.get(key)
        if starting is None:
            starting = self._starting[key] = Starting()
            starting.task = asyncio.create_task(self._start(key, query, choice, starting))
        starting.wanted.append(wanted)
        # Shielded: a caller that is cancelled must not cancel the hydration for the others.
        return await asyncio.shield(starting.task)

    async def examine(self, query: Query, choice: KeyChoice, wanted: Wanted, work: Callable[[Engine], T]) -> T:
        """Run plain code with an engine of its own, in slices, and return its result; raises `SyncError`."""
        async with slot(self._turns, wanted):
            aside = self._pipelines.aside(query, choice, self._turns, wanted)
            try:
                return await aside.run(lambda: work(aside.evaluation.engine))
            finally:
                aside.close()

    async def _start(self, key: str, query: Query, choice: KeyChoice, starting: Starting) -> LiveQuery:
        try:
            async with slot(self._turns, starting.is_wanted):
                for _ in range(ATTEMPTS):
                    try:
                        return await self._attempt(key, query, choice, starting)
                    except (Moved, ChangesForgotten):
                        continue
            raise SyncError(ErrorKind.REHOME, "The tables have changed while the query was hydrated")
        except TooManyRows as error:
            raise too_many_rows(query, error) from None
        finally:
            del self._starting[key]

    async def _attempt(self, key: str, query: Query, choice: KeyChoice, starting: Starting) -> LiveQuery:
        began = time.perf_counter()
        aside = starting.aside = self._pipelines.aside(query, choice, self._turns, starting.is_wanted)
        try:
            pipeline = await aside.compile(query)
            await aside.run(lambda: deque(pipeline.hydrate(), maxlen=0))
            live = LiveQuery(key, query, choice, aside.evaluation, pipeline)
            patches = await self._record(live, aside.version, starting)
            while True:
                await self._follow(aside, starting)
                adopted = await self._adopt(live, aside, patches, starting, began)
                if adopted is not None:
                    return adopted
        finally:
            starting.aside = None
            aside.close()

    async def _record(self, live: LiveQuery, version: str, starting: Starting) -> list[RowPatch]:
        """Record what can be recorded before the query is adopted; returns the rest."""
        patches = await self._recording.find_differences(live)
        starting.recorded_id = live.id
        if live.last_patch:
            # Clients may have had its rows: differences are recorded at a version that is newer than all cookies.
            return patches
        await self._recording.record_new(live, patches, version)
        starting.recorded_id = live.id
        return []

    async def _follow(self, aside: Aside, starting: Starting) -> None:
        """Bring this query close to the version of the others: catch up with them, or wait for them."""
        pipelines = self._pipelines
        if aside.version < pipelines.version:
            await aside.run(aside.catch_up)
        while aside.version > pipelines.version and starting.is_wanted() and not self._turns.stopping:
            pipelines.notify()
            try:
                async with asyncio.timeout(WAITING):
                    await pipelines.moved.wait()
            except TimeoutError:
                continue

    async def _adopt(
        self, live: LiveQuery, aside: Aside, patches: list[RowPatch], starting: Starting, began: float
    ) -> LiveQuery | None:
        """Move the query to the others and count a user for each waiting call; None if they are at an older version."""
        pipelines = self._pipelines
        async with pipelines.lock:
            if pipelines.schema is not aside.schema:
                raise Moved
            if aside.version > pipelines.version:
                return None
            if aside.version < pipelines.version:
                await aside.run(lambda: aside.push_changes(pipelines.connection, pipelines.version))
            patches = patches + await self._pace.collected(live.rows.patches())
            adopted = pipelines.adopt(live)
            if adopted is live:
                await self._finish(live, patches)
                pipelines.enter(live, time.perf_counter() - began)
            adopted.users += len(starting.wanted)
        return adopted

    async def _finish(self, live: LiveQuery, patches: list[RowPatch]) -> None:
        """Record the rest, at the version of the other queries."""
        try:
            await self._recording.record(live, patches, self._pipelines.version)
        except BaseException:
            live.stop()
            raise


def too_many_rows(query: Query, error: TooManyRows) -> TooExpensive:
    """The error for the clients of a query that has more rows than one may have."""
    return TooExpensive(query.table, f"{error}; select fewer, or raise CHANGESOURCE_CACHE_HYDRATION_ROWS")
