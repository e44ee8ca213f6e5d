"""Evaluation aside: a slow query in an engine of its own, over a snapshot of its own.

A query that hydrates within `PATIENCE` is hydrated in the common engine. One that takes longer is hydrated here:
commits and other queries do not wait for it. It can pause anywhere, also in plain calls and inside SQLite statements,
and it ends when no client wants it any more or its budget is used up.

All evaluations aside take turns: at any time, at most one of them occupies the event loop, for one time slice.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from protocol.sync.ast import Query
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.background import in_background
from reference_cache.replica.change_log import SchemaChanged, Truncated, changes_between
from reference_cache.replica.replica import Replica
from reference_cache.replica.schema import ReplicaSchema
from reference_cache.replica.snapshotter import Snapshotter
from reference_cache.replica.stored_catalog import read_state
from reference_cache.view_syncer.pipelines.distinct_query import KeyChoice
from reference_cache.view_syncer.pipelines.evaluation import Evaluation
from reference_cache.view_syncer.pipelines.net_changes import WINDOW, NetChanges
from reference_cache.view_syncer.pipelines.query_rows import QueryRows
from reference_cache.view_syncer.pipelines.stepped_thread import SteppedThread
from reference_cache.zql.engine.engine import Pipeline
from reference_cache.zql.planner.cost_model import SqliteCostModel
from reference_cache.zql.query.canonical import canonical

T = TypeVar("T")
Wanted = Callable[[], bool]
"""Returns whether a client still waits for the query; called between slices, on the event loop."""

AT_ONCE = 8
"""Evaluations aside that run at a time; others wait for a slot."""

WAITING = 0.05
"""Seconds between two checks whether a query that waits for a slot is still wanted."""


class Moved(Exception):
    """A table was truncated or altered, which cannot be pushed as row changes: start the hydration again."""


class TooExpensive(SyncError):
    """A query has used up its budget."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(ErrorKind.INTERNAL, f"The query on {table!r} was stopped: {reason}")


class Turns:
    """Which evaluation aside may occupy the event loop, for `seconds` at a time. Shared by all of them.

    `slots` bounds how many run at a time, and with them threads, connections and rows in memory; `turn` is held for one
    time slice.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.turn = asyncio.Lock()
        # Set once, by `SlowStart.stop` when the cache ends.
        self.stopping = False

    def check(self, wanted: Wanted) -> None:
        """Raise `SyncError` if an evaluation is to end: no client waits for its query, or the cache stops."""
        if self.stopping or not wanted():
            raise SyncError(ErrorKind.REHOME, "No client waits for the query any more")


class Aside:
    """One evaluation aside. Invariant: its engine is at `version`, that of the current snapshot.

    `seconds` is how long it may occupy the event loop in total, and `rows` how many rows the query may have; `table`
    names the query in errors. Close it after use.

    Methods marked as plain code are called by the work of `run`, in a `SteppedThread`. That thread never runs at the
    same time as the event loop, so nothing here needs a lock.
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
        self._budget = seconds
        # Seconds of the budget that are left; written by `_step`.
        self._left = seconds
        # The thread that executes `run`; None between runs.
        self._thread: SteppedThread[Any] | None = None
        # When the present slice ends (monotonic); written by `_step`.
        self._slice_end = 0.0
        self._snapshots = Snapshotter(replica, self._pause_in_sqlite)
        connection = self._snapshots.current
        # The state version of the evaluation; written by `push_changes`.
        self.version = read_state(connection).version
        costs = SqliteCostModel(connection)
        self.evaluation = Evaluation(schema.engine_schema, choice, connection, self._checkpoint, costs, rows)

    def close(self) -> None:
        """Close the connections; pipelines that were adopted by then do not use them."""
        self._snapshots.close()

    async def compile(self, query: Query) -> Pipeline[QueryRows]:
        """Build the query's pipeline in a background thread; plain code in `run` hydrates it."""
        evaluation = self.evaluation
        return await in_background(lambda: evaluation.start(canonical(query, evaluation.schema)))

    # --- pacing ---

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in slices and return its result; raises `SyncError` if no client wants it or it takes too long."""
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
        """Let the thread run for one slice, when it is this evaluation's turn; returns whether its work has ended."""
        self._turns.check(self._wanted)
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
        """Pause the thread if the slice is over. Sources call it between rows; False, so that they add no `YIELD`."""
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
        after = self._snapshots.hold_next()
        try:
            version = read_state(after).version
            self.push_changes(after, version)
        except BaseException:
            self._snapshots.release_next()
            raise
        self.evaluation.move_to(after)
        self._snapshots.advance()

    def push_changes(self, after: sqlite3.Connection, version: str) -> None:
        """Push the changes from the evaluation's version to `version`, which `after` reads. Plain code for `run`.

        Raises `Moved`, `ChangesForgotten`, and what the query's pipeline raises.
        """
        stores = self.evaluation.stores
        net = NetChanges(lambda table: stores[table].key)
        for _, table, change in changes_between(after, self.schema, self.version, version, stores):
            if isinstance(change, Truncated | SchemaChanged):
                raise Moved
            net.note(table, change)
            if len(net) >= WINDOW:
                self._push(net)
        self._push(net)
        self.evaluation.settle()
        for error in self.evaluation.engine.failed.values():
            raise error
        self.version = version

    def _push(self, net: NetChanges) -> None:
        for table, change in net.drain():
            self.evaluation.push(table, change)


@asynccontextmanager
async def slot(turns: Turns, wanted: Wanted) -> AsyncIterator[None]:
    """Hold one of the slots for evaluations aside; raises `SyncError` if no client wants the query any more."""
    while True:
        turns.check(wanted)
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
