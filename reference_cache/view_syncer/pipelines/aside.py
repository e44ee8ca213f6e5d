"""Evaluation aside: a query in an engine of its own, over a snapshot of its own, while everybody else goes on.

A query that hydrates within moments is hydrated in the common engine. One that takes longer is moved here: commits and
other queries do not wait for it, it pauses wherever it is, in plain calls and inside SQLite statements too, and it ends
when nobody wants it any more or its budget is used up.

All evaluations aside take turns: the event loop is kept by one slice of one of them at a time.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from protocol.sync.ast import Query
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.background import in_background
from reference_cache.replica.change_log import SchemaChanged, Truncate, changes_between
from reference_cache.replica.replica import Replica
from reference_cache.replica.schema import ReplicaSchema
from reference_cache.replica.stored_catalog import read_state
from reference_cache.view_syncer.pipelines.evaluation import Evaluation, KeyChoice
from reference_cache.view_syncer.pipelines.net_changes import NetChanges
from reference_cache.view_syncer.pipelines.stepped_thread import SteppedThread
from reference_cache.zql.ivm.change import Pause
from reference_cache.zql.planner.cost_model import SqliteCostModel
from reference_cache.zql.tables.followed import hold_snapshot, release_snapshot

T = TypeVar("T")
Wanted = Callable[[], bool]

AT_ONCE = 8
"""Evaluations that are under way at a time; others wait."""

STEPS_BETWEEN_CLOCK_READINGS = 4000
"""Instructions of SQLite's machine; some tens of microseconds."""

WAITING = 0.05
"""Seconds between two looks whether an evaluation that waits for its turn is still wanted."""

WINDOW = 20_000
"""Rows whose changes are put together before they are evaluated."""


class Moved(Exception):
    """The tables have changed in a way that no row change describes: start again."""


class TooExpensive(SyncError):
    """A query has used up its budget."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(ErrorKind.INTERNAL, f"The query on {table!r} was stopped: {reason}")


class Turns:
    """Who may keep the event loop for a slice. Shared by all evaluations aside of a cache."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.turn = asyncio.Lock()
        self.stopping = False  # set once, when the cache ends


class Aside:
    """One evaluation aside. Invariant: its engine is at `version`, which `_held` sees.

    `seconds` is its budget of time that it keeps the event loop; `table` names the query in errors.
    """

    def __init__(
        self,
        replica: Replica,
        schema: ReplicaSchema,
        choice: KeyChoice,
        turns: Turns,
        wanted: Wanted,
        *,
        table: str,
        seconds: float,
        rows: int,
    ) -> None:
        self.schema = schema
        self._turns = turns
        self._wanted = wanted
        self._table = table
        self._left = self._budget = seconds
        self._thread: SteppedThread[Any] | None = None  # while `run` is under way
        self._slice_end = 0.0  # of the slice that `_thread` has
        self._held, self._spare = replica.connect(), replica.connect()
        for connection in (self._held, self._spare):
            connection.set_progress_handler(self._pause_in_sqlite, STEPS_BETWEEN_CLOCK_READINGS)
        hold_snapshot(self._held)
        self.version = read_state(self._held).version
        costs = SqliteCostModel(self._held)
        self.evaluation = Evaluation(schema.engine_schema, choice, self._held, self._checkpoint, costs, rows)

    def close(self) -> None:
        """Close the connections; the evaluation must not be used any more."""
        for connection in (self._held, self._spare):
            connection.close()

    async def compiled(self, query: Query) -> Iterator[Pause]:
        """The hydration of a query, to be read to its end by plain code in `run`."""
        return await in_background(lambda: self.evaluation.subscribe(query))

    # --- pacing ---

    async def run(self, work: Callable[[], T]) -> T:
        """The result of plain code over the evaluation. Raises `SyncError` if it is not wanted or too expensive."""
        self._slice_end = 0.0
        self._thread = thread = SteppedThread(work)
        try:
            while not await self._step(thread):
                pass
        except BaseException as error:
            thread.stop(error)
            raise
        finally:
            self._thread = None
        return thread.result

    async def _step(self, thread: SteppedThread[Any]) -> bool:
        if self._turns.stopping or not self._wanted():
            raise SyncError(ErrorKind.REHOME, "Nobody waits for the query any more")
        if self._left <= 0:
            raise self._too_long()
        async with self._turns.turn:
            began = time.monotonic()
            self._slice_end = began + self._turns.seconds
            ended = thread.step()
            self._left -= time.monotonic() - began
        await asyncio.sleep(0)
        return ended

    def _too_long(self) -> TooExpensive:
        fix = "select fewer rows, add an index, or raise CHANGESOURCE_CACHE_HYDRATION_SECONDS"
        return TooExpensive(self._table, f"it takes longer than {self._budget:g} s; {fix}")

    def _checkpoint(self) -> bool:
        """For sources: pauses here, so streams need no pauses in them."""
        if self._thread is not None and time.monotonic() >= self._slice_end:
            self._thread.pause()
        return False

    def _pause_in_sqlite(self) -> int:
        try:
            self._checkpoint()
        except BaseException:
            return 1  # interrupts the statement; the next checkpoint raises what this one did
        return 0

    # --- following the replica ---

    def catch_up(self) -> None:
        """Go to the replica's newest version. Plain code for `run`; raises `Moved` or `ChangesForgotten`."""
        after = self._spare
        hold_snapshot(after)
        try:
            version = read_state(after).version
            self.push_changes(after, version)
        except BaseException:
            release_snapshot(after)
            raise
        self.evaluation.move_to(after)
        release_snapshot(self._held)
        self._held, self._spare = after, self._held

    def push_changes(self, after: sqlite3.Connection, version: str) -> None:
        """Push what happened up to `version`, which `after` sees. Plain code for `run`."""
        stores = self.evaluation.stores
        net = NetChanges(lambda table: stores[table].key)
        for _, table, change in changes_between(after, self.schema, self.version, version, stores):
            if isinstance(change, Truncate | SchemaChanged):
                raise Moved
            net.note(table, change)
            if len(net) >= WINDOW:
                self._push(net)
        self._push(net)
        self.evaluation.settle()
        for error in self.evaluation.shared.failed.values():
            raise error
        self.version = version

    def _push(self, net: NetChanges) -> None:
        for table, change in net.drain():
            self.evaluation.push(table, change)


@asynccontextmanager
async def slot(turns: Turns, wanted: Wanted) -> AsyncIterator[None]:
    """One of the slots for evaluations aside, once it is free; raises `SyncError` if nobody wants it any more."""
    while True:
        if turns.stopping or not wanted():
            raise SyncError(ErrorKind.REHOME, "Nobody waits for the query any more")
        try:
            async with asyncio.timeout(WAITING):
                await turns.slots.acquire()
        except TimeoutError:
            continue
        break
    try:
        yield
    finally:
        turns.slots.release()
