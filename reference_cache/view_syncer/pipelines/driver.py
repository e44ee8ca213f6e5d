"""The pipelines of all running queries: start, stop, and advance them with the replica.

    live = await pipelines.open(query, choice, wanted)  # hydrated, its records up to date; takes the lock itself
    async with pipelines.lock:
        step = await pipelines.advance()                # to the newest version; None if the queries are there

Code that reads or changes the rows of queries holds `lock`; long work lets other tasks run in between and keeps it. All
queries read one snapshot of the replica; a step holds the next one (`Snapshotter`) and moves all of them to it.

No task holds the lock for long. A query that does not hydrate within `PATIENCE` is hydrated aside (`slow_start`). One
that delays a step too long is stopped; its clients reconnect, and then it is hydrated aside.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from protocol.sync.ast import Query, has_more_parts
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.background import in_background
from reference_cache.replica.change_log import LoggedChange, SchemaChanged, Truncated, changes_between
from reference_cache.replica.errors import ChangesForgotten
from reference_cache.replica.file_identity import file_identity
from reference_cache.replica.replica import Replica, open_replica
from reference_cache.replica.schema import ReplicaSchema, read_schema
from reference_cache.replica.snapshotter import Snapshotter
from reference_cache.replica.stored_catalog import ReplicaState, read_state
from reference_cache.view_syncer.api import SyncerOptions
from reference_cache.view_syncer.cvr.file import CvrFile, is_full
from reference_cache.view_syncer.cvr.records import RecordStore, RowPatch
from reference_cache.view_syncer.pipelines.aside import Aside, Turns, Wanted
from reference_cache.view_syncer.pipelines.digest import Digest
from reference_cache.view_syncer.pipelines.distinct_query import DistinctQuery, KeyChoice, distinct_query
from reference_cache.view_syncer.pipelines.evaluation import Evaluation
from reference_cache.view_syncer.pipelines.live_query import LiveQuery, QueryPipeline
from reference_cache.view_syncer.pipelines.net_changes import WINDOW, KeyOf, NetChanges
from reference_cache.view_syncer.pipelines.pacing import Pace
from reference_cache.view_syncer.pipelines.query_rows import TooManyRows
from reference_cache.view_syncer.pipelines.recording import BATCH, Recording
from reference_cache.view_syncer.pipelines.slow_start import SlowStart, too_many_rows
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.engine.row_references import RowReceiver
from reference_cache.zql.ivm.effort import Effort, is_overrun
from reference_cache.zql.planner.cost_model import SqliteCostModel
from reference_cache.zql.query.canonical import canonical

log = logging.getLogger(__name__)

T = TypeVar("T")

LARGE_QUERY = 300
"""A query with more parts than this is compiled in a background thread, and never under the lock."""

PATIENCE = 0.25
"""Seconds that a hydration may take under the lock, while new versions wait."""


class ResetReason(Enum):
    """Why a step hydrated all queries again instead of pushing changes."""

    SCHEMA_CHANGED = "a table was created, dropped or altered"
    TRUNCATED = "a table was truncated"
    LOG_PRUNED = "the replica's change log does not reach back"
    PUSH_FAILED = "a change could not be pushed"


@dataclass(slots=True)
class VersionStep:
    """A step to `version`: the net effect on each query, and the changes of the watched tables.

    After a `reset` all queries were hydrated again; `patches` is then the difference from their records, and `watched`
    is empty although the tables may have changed. `failed` has the queries that were stopped, with the reason.
    """

    version: str
    patches: dict[LiveQuery, list[RowPatch]] = field(default_factory=dict)
    watched: list[LoggedChange] = field(default_factory=list)
    reset: ResetReason | None = None
    failed: dict[LiveQuery, Exception] = field(default_factory=dict)


class Pipelines:
    """The running queries. Invariant: while `lock` is free, all of them are at `version` and recorded so.

    Used on the event loop only. `watched` are tables whose changes each step reports, read by a query or not.
    """

    def __init__(self, options: SyncerOptions, file: CvrFile, watched: Iterable[str], pace: Pace) -> None:
        self.lock = asyncio.Lock()
        self._options = options
        self._path = options.replica_file
        self._file = file
        self._watched = frozenset(watched)
        self._pace = pace
        self._recording = Recording(file, pace)
        self._effort = Effort(pace.slice)
        self._slow = SlowStart(self, self._recording, options, pace)
        # Both set once by the view syncer, before `start`. `notify` asks it for an advance; `on_ended` is called with
        # queries that have stopped.
        self.notify: Callable[[], None] = lambda: None
        self.on_ended: Callable[[Iterable[LiveQuery]], None] = lambda ended: None
        # The state version of all queries; set by `start`, and by each step under the lock.
        self.version = ""
        # Set, and replaced by a new event, when `version` changes.
        self.moved = asyncio.Event()
        # The tables at `version`; written by `_read_schema`, at the start and in a reset.
        self.schema = ReplicaSchema({}, {})
        # The same tables as the engine sees them; written together with `schema`.
        self.engine_schema = self.schema.engine_schema
        # The running queries by key. This and the two indexes below are written under the lock.
        self.live: dict[str, LiveQuery] = {}
        # By key choice and canonical query. Two keys may belong to one identity: the key is a hash of JSON text, in
        # which an empty list may be written out or left out.
        self._by_identity: dict[tuple[KeyChoice, Query], LiveQuery] = {}
        # By the rows that the pipeline reports to; finds the query of a touched or failed pipeline.
        self._by_rows: dict[RowReceiver, LiveQuery] = {}
        # Made on first use; all are dropped by a reset, because their schema is another one.
        self._evaluations: dict[KeyChoice, Evaluation] = {}
        # Milliseconds of hydrations and of steps, since the process started.
        self._hydrations, self._updates = Digest(), Digest()
        # The open replica; set by `start`, None after `close`.
        self._replica: Replica | None = None
        # Device and inode of the file that `start` opened; shows whether the path still names that file.
        self._identity: tuple[int, int] | None = None
        # Opened by `start`. Its current snapshot is at `version`; `advance` reads the next one.
        self._snapshots: Snapshotter
        # For cost estimates; has no open transaction, so that it does not keep the write-ahead log from shrinking.
        self._planning: sqlite3.Connection

    @property
    def records(self) -> RecordStore:
        """The row records of the CVR file."""
        return self._recording.store

    @property
    def connection(self) -> sqlite3.Connection:
        """Reads the replica at `version`."""
        return self._snapshots.current

    def start(self) -> ReplicaState:
        """Open the replica and read its newest version; raises `FileNotFoundError` while there is none."""
        self.close()
        identity = file_identity(self._path)
        self._replica = open_replica(self._path)
        self._identity = identity
        self._snapshots = Snapshotter(self._replica, self._effort.interrupts)
        self._planning = self._replica.connect()
        state = read_state(self.connection)
        self.version = state.version
        self._read_schema()
        return state

    def _read_schema(self) -> None:
        """Read the tables at `version`, and drop all evaluations."""
        self.schema = read_schema(self.connection)
        self.engine_schema = self.schema.engine_schema
        self._evaluations.clear()
        self._by_identity.clear()
        self._by_rows.clear()

    def close(self) -> None:
        """Close the connections to the replica."""
        if self._replica is not None:
            self._snapshots.close()
            self._planning.close()
            self._replica.close()
            self._replica = None

    def newest(self) -> ReplicaState | None:
        """The newest committed state of the replica; None if its file was replaced or deleted."""
        return self._replica.state() if self._replica is not None and self.is_in_place else None

    @property
    def is_in_place(self) -> bool:
        """Whether the open replica is still the file under its name."""
        return self._replica is not None and file_identity(self._path) == self._identity

    def evaluation(self, choice: KeyChoice) -> Evaluation:
        """The evaluation for this choice of keys, made on first use."""
        evaluation = self._evaluations.get(choice)
        if evaluation is None:
            costs = SqliteCostModel(self._planning)
            rows = self._options.hydration_rows
            evaluation = Evaluation(self.engine_schema, choice, self.connection, self._effort, costs, rows)
            self._evaluations[choice] = evaluation
        return evaluation

    async def open(self, query: Query, choice: KeyChoice, wanted: Wanted = lambda: True) -> LiveQuery:
        """Join a running query, or start it: hydrate it and record its rows. End the use with `release`.

        Call without the lock. A slow hydration ends when `wanted` returns False. Raises `SyncError` then, and if the
        query is too expensive; raises `AstError` if the query does not fit the schema.
        """
        is_large = has_more_parts(query, LARGE_QUERY)
        distinct: DistinctQuery | None = None
        if is_large:
            distinct = await in_background(partial(distinct_query, query, choice, self.evaluation(choice).schema))
        async with self.lock:
            evaluation = self.evaluation(choice)
            distinct = distinct or evaluation.distinct(query)
            live = self.live.get(distinct.key) or self._by_identity.get((choice, distinct.canonical))
            if live is None and not is_large and not self._slow.is_starting(distinct.key):
                live = await self._start_soon(distinct, query, choice, evaluation)
            if live is not None:
                live.users += 1
                return live
        return await self._slow.open(distinct.key, query, choice, wanted)

    async def _start_soon(
        self, distinct: DistinctQuery, query: Query, choice: KeyChoice, evaluation: Evaluation
    ) -> LiveQuery | None:
        """Start a query; None if it takes longer than `PATIENCE`."""
        try:
            return await self._start(distinct, query, choice, evaluation)
        except TooManyRows as error:
            raise too_many_rows(query, error) from None
        except Exception as error:
            if is_overrun(error):
                return None
            raise

    async def _start(
        self, distinct: DistinctQuery, query: Query, choice: KeyChoice, evaluation: Evaluation
    ) -> LiveQuery:
        began = time.perf_counter()
        pipeline = await self._hydrate(distinct.canonical, evaluation)
        live = LiveQuery(distinct.key, query, choice, evaluation, pipeline)
        try:
            await self._recording.record_hydration(live, self.version)
        except BaseException:
            live.stop()
            raise
        self.enter(live, time.perf_counter() - began)
        return live

    def enter(self, live: LiveQuery, seconds: float) -> None:
        """Add a hydrated and recorded query; `seconds` is how long its hydration took. Call with the lock."""
        live.hydration_seconds = seconds
        self._hydrations.add(seconds * 1000)
        self.live[live.key] = live
        self._index(live)

    def _index(self, live: LiveQuery) -> None:
        self._by_identity[live.choice, live.pipeline.query] = live
        self._by_rows[live.rows] = live

    def adopt(self, live: LiveQuery) -> LiveQuery:
        """Move a query that was hydrated aside, and is at this version, into the common evaluation. Call with the lock.

        Returns the query; or the one that runs already, if the same query was started under another key meanwhile.
        """
        same = self._by_identity.get((live.choice, live.pipeline.query))
        if same is not None:
            live.stop()
            return same
        evaluation = self.evaluation(live.choice)
        evaluation.adopt(live.pipeline, live.evaluation)
        live.evaluation = evaluation
        return live

    async def _hydrate(self, query: Query, evaluation: Evaluation) -> QueryPipeline:
        """The hydrated pipeline of a canonical query; raises `Overrun` after `PATIENCE` seconds."""
        await self._pace.pause()  # many short hydrations are one long stretch of work
        self._effort.limit_hydration(PATIENCE)
        try:
            pipeline = evaluation.start(query)
            try:
                for _ in pipeline.hydrate():
                    await self._pace.pause()
            except BaseException:
                evaluation.engine.remove_query(pipeline)
                raise
            return pipeline
        finally:
            self._effort.free()

    def aside(self, query: Query, choice: KeyChoice, turns: Turns, wanted: Wanted) -> Aside:
        """An evaluation of its own for a query, over the replica's newest version; the caller closes it."""
        assert self._replica is not None
        seconds, rows = self._options.hydration_seconds, self._options.hydration_rows
        return Aside(self._replica, self.schema, choice, turns, wanted, table=query.table, seconds=seconds, rows=rows)

    async def examine(self, query: Query, choice: KeyChoice, wanted: Wanted, work: Callable[[Engine], T]) -> T:
        """Run plain code with an engine of its own, in slices, and return its result. Call without the lock.

        Raises `SyncError` if `wanted` returns False or the code takes too long.
        """
        return await self._slow.examine(query, choice, wanted, work)

    def stop_starting(self) -> None:
        """Stop all hydrations aside at their next pause, and refuse new ones."""
        self._slow.stop()

    @property
    def read_version(self) -> str:
        """The version up to which all queries have read the replica's change log, also those being hydrated aside."""
        return min(self.version, self._slow.oldest_version or self.version)

    def recorded_ids(self) -> set[int]:
        """The numbers, in the CVR file, of the queries that are running or being started."""
        return {live.id for live in self.live.values()} | self._slow.recorded_ids()

    def release(self, lives: Iterable[LiveQuery]) -> None:
        """End one use of each of these queries, and stop those without another. Call with the lock."""
        ended = []
        for live in lives:
            live.users -= 1
            if not live.users and self.live.get(live.key) is live:
                self._forget(live)
                live.stop()
                ended.append(live)
        if ended:
            self.on_ended(ended)
            with self._file.transaction(self.version):
                for live in ended:
                    self.records.settle(live, self.version)

    def _forget(self, live: LiveQuery) -> None:
        del self.live[live.key]
        # Not indexed if a reset failed half way.
        self._by_identity.pop((live.choice, live.pipeline.query), None)
        self._by_rows.pop(live.rows, None)

    async def advance(self) -> VersionStep | None:
        """Go to the replica's newest version, however many commits away; None if it is this one. Call with the lock."""
        after = self._snapshots.hold_next()
        state = read_state(after)
        if state.version == self.version:
            # The same data, but an old snapshot would keep the replica's write-ahead log from shrinking.
            self._move(after, state.version)
            return None
        step = VersionStep(state.version)
        began = time.perf_counter()
        try:
            step.reset = await self._push_changes(after, step)
        except ChangesForgotten:
            step.reset = ResetReason.LOG_PRUNED
        except Exception as error:
            if is_full(error):
                raise
            # The pipelines are half way through the change: hydrate all of them again, and see which can run.
            log.exception(
                "a change between %s and %s cannot be evaluated; all queries are hydrated again",
                self.version,
                step.version,
            )
            step.reset = ResetReason.PUSH_FAILED
        self._move(after, state.version)
        if step.reset is not None:
            await self._reset(step)
        self.on_ended(step.failed)
        await self._write(step)
        self._note_update(step, time.perf_counter() - began)
        return step

    def _note_update(self, step: VersionStep, seconds: float) -> None:
        self._updates.add(seconds * 1000)
        for live in step.patches:
            live.note_update(seconds)

    def metrics(self) -> dict[str, Any]:
        """How long queries took to hydrate and to follow changes, in milliseconds, as the inspector takes it."""
        return {
            "query-materialization-server": self._hydrations.to_json(),
            "query-update-server": self._updates.to_json(),
        }

    async def _push_changes(self, after: sqlite3.Connection, step: VersionStep) -> ResetReason | None:
        """Push the changes between the two snapshots; returns the reason if all queries must be hydrated again."""
        self._pace.begin()
        self._effort.limit_pushes(self._options.push_seconds)
        try:
            return await self._push_limited(after, step)
        finally:
            self._effort.free()

    async def _push_limited(self, after: sqlite3.Connection, step: VersionStep) -> ResetReason | None:
        read = frozenset[str]().union(*(each.stores for each in self._evaluations.values()))
        net = NetChanges(self._key_of)
        changes = changes_between(after, self.schema, self.version, step.version, read | self._watched)
        async for logged in self._pace.sliced(changes, every=16):
            _, table, change = logged
            if isinstance(change, Truncated):
                return ResetReason.TRUNCATED
            if isinstance(change, SchemaChanged):
                return ResetReason.SCHEMA_CHANGED
            if table in self._watched:
                step.watched.append(logged)
            if table in read:
                net.note(table, change)
                if len(net) >= WINDOW:
                    await self._push(net)
        await self._push(net)
        for evaluation in self._evaluations.values():
            touched = evaluation.settle()
            self._drop_failed(evaluation, step)
            for rows in touched:
                patches = await self._pace.collected(rows.patches())
                if patches:
                    step.patches[self._by_rows[rows]] = patches
        return None

    def _drop_failed(self, evaluation: Evaluation, step: VersionStep) -> None:
        """Move the queries whose pipelines failed during a push to `step.failed`."""
        for pipeline, error in evaluation.engine.failed.items():
            live = self._by_rows[pipeline.rows]
            self._forget(live)
            step.failed[live] = too_slow(live.query) if is_overrun(error) else error
            log.warning("a query on %s was stopped by a change: %s", live.query.table, error)
        evaluation.engine.failed.clear()

    async def _push(self, net: NetChanges) -> None:
        async for table, change in self._pace.sliced(net.drain(), every=1):
            self._effort.note_change()
            for evaluation in self._evaluations.values():
                if table in evaluation.stores:
                    evaluation.push(table, change)

    def _key_of(self, table: str) -> KeyOf:
        """The function that returns the key of a row, for a table that an evaluation reads."""
        return next(each.stores[table].key for each in self._evaluations.values() if table in each.stores)

    def _move(self, after: sqlite3.Connection, version: str) -> None:
        """Make the next snapshot, which `after` reads, the one of all queries."""
        for evaluation in self._evaluations.values():
            evaluation.move_to(after)
        self._snapshots.advance()
        if version != self.version:
            self.version = version
            self.moved.set()
            self.moved = asyncio.Event()

    async def _reset(self, step: VersionStep) -> None:
        """Hydrate all queries again; the step's patches become the differences from their records."""
        step.patches.clear()
        step.watched.clear()
        self._read_schema()
        for live in list(self.live.values()):
            try:
                patches = await self._hydrate_again(live)
            except Exception as error:
                if is_full(error):  # no fault of the query
                    raise
                log.warning("a query on %s cannot run any more: %s", live.query.table, error)
                del self.live[live.key]
                live.stop()
                step.failed[live] = too_slow(live.query) if is_overrun(error) else error
            else:
                if patches:
                    step.patches[live] = patches

    async def _hydrate_again(self, live: LiveQuery) -> list[RowPatch]:
        evaluation = self.evaluation(live.choice)
        # The tables may be others now, and with them the canonical form; the key in the CVR file stays what it was.
        pipeline = await self._hydrate(canonical(live.query, evaluation.schema), evaluation)
        live.pipeline, live.evaluation = pipeline, evaluation
        patches = await self._recording.record_hydration(live, self.version)
        self._index(live)
        return patches

    async def _write(self, step: VersionStep) -> None:
        """Record what the step did to all queries, in one transaction unless there is much of it.

        No client has been sent any of it yet. If only a part is recorded, the rest is a difference from the records
        when the queries are hydrated the next time.
        """
        if step.reset is not None or not (step.patches or step.watched):
            return
        for batch in _batches(step.patches):
            with self._file.transaction(step.version):
                for live, patches in batch:
                    self.records.write(live, step.version, patches)
            await self._pace.pause()


def too_slow(query: Query) -> SyncError:
    """The error that makes the clients of a query reconnect; it is then hydrated aside."""
    return SyncError(ErrorKind.REHOME, f"The query on {query.table!r} takes too long to follow changes; connect again")


def _batches(patches: dict[LiveQuery, list[RowPatch]]) -> Iterator[list[tuple[LiveQuery, list[RowPatch]]]]:
    """Split the patches of all queries into batches of at most BATCH; always yields at least one batch."""
    batch: list[tuple[LiveQuery, list[RowPatch]]] = []
    size = 0
    for live, of_query in patches.items():
        for start in range(0, len(of_query), BATCH):
            part = of_query[start : start + BATCH]
            if batch and size + len(part) > BATCH:
                yield batch
                batch, size = [], 0
            batch.append((live, part))
            size += len(part)
    yield batch
