"""Starting the queries that take long: hydrated aside, brought up to the version of the others, and taken in.

One hydration serves everybody who asks for the query meanwhile. Its rows are recorded before it is taken in, so that
the lock is needed only for what has changed in the end.
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
from reference_cache.view_syncer.cvr.file import CvrFile
from reference_cache.view_syncer.cvr.records import RecordedQuery
from reference_cache.view_syncer.pipelines.aside import WAITING, Aside, Moved, TooExpensive, Turns, Wanted, slot
from reference_cache.view_syncer.pipelines.evaluation import KeyChoice
from reference_cache.view_syncer.pipelines.live_query import LiveQuery, Patch
from reference_cache.view_syncer.pipelines.pacing import Pace
from reference_cache.view_syncer.pipelines.recording import find_differences, record, record_new
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.engine.shared import TooManyRows

if TYPE_CHECKING:
    from reference_cache.view_syncer.pipelines.driver import Pipelines

T = TypeVar("T")

ATTEMPTS = 3
"""How often a hydration is begun again because the tables have changed under it."""


class Starting:
    """A query on its way. `wanted` has an entry for everybody who waits for it."""

    def __init__(self) -> None:
        self.wanted: list[Wanted] = []
        self.task: asyncio.Task[LiveQuery]
        self.aside: Aside | None = None  # while it is hydrated
        self.recorded: RecordedQuery | None = None  # once something is in the file

    def is_wanted(self) -> bool:
        return any(wanted() for wanted in self.wanted)


class SlowStart:
    """The queries that are being hydrated aside, by key."""

    def __init__(self, pipelines: Pipelines, options: SyncerOptions, file: CvrFile, pace: Pace) -> None:
        self._pipelines = pipelines
        self._file = file
        self._pace = pace
        self._turns = Turns(options.time_slice)
        self._starting: dict[str, Starting] = {}

    def is_starting(self, key: str) -> bool:
        return key in self._starting

    @property
    def oldest_version(self) -> str | None:
        """The oldest version of the data that a hydration reads."""
        return min((each.aside.version for each in self._starting.values() if each.aside), default=None)

    def recorded_ids(self) -> set[int]:
        """The queries that have records already."""
        return {each.recorded.id for each in self._starting.values() if each.recorded}

    def stop(self) -> None:
        """Give all of them up, at their next pause."""
        self._turns.stopping = True

    async def open(self, key: str, query: Query, choice: KeyChoice, wanted: Wanted) -> LiveQuery:
        """The query, running and counted once more; raises `SyncError`."""
        starting = self._starting.get(key)
        if starting is None:
            starting = self._starting[key] = Starting()
            starting.task = asyncio.create_task(self._start(key, query, choice, starting))
        starting.wanted.append(wanted)
        return await asyncio.shield(starting.task)

    async def examine(self, query: Query, choice: KeyChoice, wanted: Wanted, work: Callable[[Engine], T]) -> T:
        """The result of plain code over an engine of its own."""
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
            hydration = await aside.compiled(query)
            await aside.run(lambda: deque(hydration, maxlen=0))
            live = LiveQuery(key, query, choice, aside.evaluation)
            patches = await self._recorded(live, aside.version, starting)
            while True:
                await self._follow(aside, starting)
                taken = await self._take_in(live, aside, patches, starting, began)
                if taken is not None:
                    return taken
        finally:
            starting.aside = None
            aside.close()

    async def _recorded(self, live: LiveQuery, version: str, starting: Starting) -> list[Patch]:
        """Record what can be recorded at once; what is left."""
        store = self._pipelines.records
        starting.recorded, patches = await find_differences(live, store, self._pace)
        if starting.recorded is None or not starting.recorded.last_patch:
            starting.recorded = await record_new(live, patches, self._file, store, version, self._pace)
            return []
        # Somebody may have had its rows: what changed since goes in at a version that is newer than all cookies.
        return patches

    async def _follow(self, aside: Aside, starting: Starting) -> None:
        """Come nearer to the version of the others: go after them, or wait until they are here."""
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

    async def _take_in(
        self, live: LiveQuery, aside: Aside, patches: list[Patch], starting: Starting, began: float
    ) -> LiveQuery | None:
        """The query among the others, counted for everybody who waits; None if they are not at its version yet."""
        pipelines = self._pipelines
        async with pipelines.lock:
            if pipelines.schema is not aside.schema:
                raise Moved
            if aside.version > pipelines.version:
                return None
            if aside.version < pipelines.version:
                await aside.run(lambda: aside.push_changes(pipelines.connection, pipelines.version))
            patches = patches + await self._pace.collected(live.patches())
            adopted = pipelines.adopt(live)
            if adopted is live:
                await self._finish(live, patches, starting)
                pipelines.enter(live, time.perf_counter() - began)
            adopted.users += len(starting.wanted)
        return adopted

    async def _finish(self, live: LiveQuery, patches: list[Patch], starting: Starting) -> None:
        """Record what is left, at the version of the others."""
        pipelines = self._pipelines
        try:
            await record(live, starting.recorded, patches, self._file, pipelines.records, pipelines.version, self._pace)
        except BaseException:
            live.evaluation.shared.unsubscribe(live.query)
            raise


def too_many_rows(query: Query, error: TooManyRows) -> TooExpensive:
    """Tells a client that a query has more rows than one may have."""
    return TooExpensive(query.table, f"{error}; select fewer, or raise CHANGESOURCE_CACHE_HYDRATION_ROWS")
