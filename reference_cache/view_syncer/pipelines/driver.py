"""All running queries, over the replica's newest version: starting, stopping, and following the replica.

    live = await pipelines.open(query, choice, wanted)  # hydrated, its records up to date; takes the lock itself
    async with pipelines.lock:
        step = await pipelines.advance()                # to the newest version, or None if that is where we are

Whatever reads or changes sets of rows holds `lock`; long work lets others run in between and keeps it. The replica is
read through two connections that take turns: one holds the snapshot all queries have, the other the next one.

Nothing keeps the lock for long. A query that does not hydrate within `PATIENCE` is hydrated aside (`slow_start`), and
one that takes too much time of a transaction is stopped: whoever has it comes again and has it hydrated aside.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from protocol.sync.ast import Query, has_more_parts
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.background import in_background
from reference_cache.replica.change_log import SchemaChanged, Truncate, changes_between
from reference_cache.replica.errors import ChangesForgotten
from reference_cache.replica.file_identity import file_identity
from reference_cache.replica.replica import Replica, open_replica
from reference_cache.replica.schema import ReplicaSchema, read_schema
from reference_cache.replica.stored_catalog import ReplicaState, read_state
from reference_cache.view_syncer.api import SyncerOptions
from reference_cache.view_syncer.cvr.file import CvrFile, is_full
from reference_cache.view_syncer.cvr.records import RecordStore
from reference_cache.view_syncer.pipelines.aside import STEPS_BETWEEN_CLOCK_READINGS, Aside, Turns, Wanted
from reference_cache.view_syncer.pipelines.digest import Digest
from reference_cache.view_syncer.pipelines.evaluation import Evaluation, KeyChoice
from reference_cache.view_syncer.pipelines.live_query import LiveQuery, Patch, derive_key, query_key
from reference_cache.view_syncer.pipelines.net_changes import KeyOf, NetChanges
from reference_cache.view_syncer.pipelines.pacing import Pace
from reference_cache.view_syncer.pipelines.recording import BATCH, record_hydration
from reference_cache.view_syncer.pipelines.slow_start import SlowStart, too_many_rows
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.engine.shared import SharedQuery, TooManyRows
from reference_cache.zql.ivm.change import SourceChange
from reference_cache.zql.ivm.effort import Effort, is_overrun
from reference_cache.zql.planner.cost_model import SqliteCostModel
from reference_cache.zql.tables.followed import hold_snapshot, release_snapshot

log = logging.getLogger(__name__)

T = TypeVar("T")

LARGE_QUERY = 300
"""Parts from which on a query is not even compiled while others wait."""

PATIENCE = 0.25
"""Seconds that a query may hydrate while commits wait."""

WINDOW = 20_000
"""Rows whose changes are put together before they are evaluated; bounds the memory a large transaction takes."""


@dataclass(slots=True)
class Step:
    """From one version of the data to a later one: what happened to each query, and to the tables watched directly.

    `anew`: all queries were started again (the schema is another, or the log does not reach back), so `watched` is
    empty and says nothing. Queries that cannot go on are in `failed` and have been stopped.
    """

    version: str
    patches: dict[LiveQuery, list[Patch]] = field(default_factory=dict)
    watched: list[tuple[str, SourceChange]] = field(default_factory=list)
    anew: bool = False
    failed: dict[LiveQuery, Exception] = field(default_factory=dict)


class Pipelines:
    """The running queries. Invariant: while `lock` is free, all of them are at `version` and recorded so."""

    def __init__(self, options: SyncerOptions, file: CvrFile, watched: Iterable[str], pace: Pace) -> None:
        self.lock = asyncio.Lock()
        self.records = RecordStore(file)
        self.version = ""
        self.schema = ReplicaSchema({}, {})
        self.engine_schema = self.schema.engine_schema
        self.live: dict[str, LiveQuery] = {}
        self._path = options.replica_file
        self._file = file
        self._watched = frozenset(watched)
        self._pace = pace
        self._evaluations: dict[KeyChoice, Evaluation] = {}
        self._by_shared: dict[SharedQuery, LiveQuery] = {}
        self._effort = Effort(pace.slice)
        self._slow = SlowStart(self, options, file, pace)
        self.moved = asyncio.Event()  # set when `version` changes, and replaced
        self.notify: Callable[[], None] = lambda: None  # asks for an advance; set by the view syncer
        self.on_ended: Callable[[Iterable[LiveQuery]], None] = lambda ended: None  # hears of queries that stopped
        self._options = options
        self._hydrations, self._updates = Digest(), Digest()
        self._replica: Replica | None = None
        self._identity: tuple[int, int] | None = None  # of the replica's file that is open
        self._held: sqlite3.Connection
        self._spare: sqlite3.Connection
        self._planning: sqlite3.Connection  # estimates costs; holds no snapshot

    @property
    def connection(self) -> sqlite3.Connection:
        """Reads the replica at `version`."""
        return self._held

    def start(self) -> ReplicaState:
        """Open the replica and read its newest version; `FileNotFoundError` while there is none."""
        self.close()
        identity = file_identity(self._path)
        self._replica = open_replica(self._path)
        self._identity = identity
        self._held, self._spare, self._planning = (self._replica.connect() for _ in range(3))
        for connection in (self._held, self._spare):
            connection.set_progress_handler(self._effort.interrupts, STEPS_BETWEEN_CLOCK_READINGS)
        hold_snapshot(self._held)
        state = read_state(self._held)
        self.version = state.version
        self._read_schema()
        return state

    def _read_schema(self) -> None:
        self.schema = read_schema(self._held)
        self.engine_schema = self.schema.engine_schema
        self._evaluations.clear()
        self._by_shared.clear()

    def close(self) -> None:
        """Let go of the replica."""
        if self._replica is not None:
            for connection in (self._held, self._spare, self._planning):
                connection.close()
            self._replica.close()
            self._replica = None

    def newest(self) -> ReplicaState | None:
        """The newest state of the replica; None if it is another file now, or none."""
        return self._replica.state() if self._replica is not None and self.is_in_place else None

    @property
    def is_in_place(self) -> bool:
        """Whether the replica that is open is the one that is found under its name."""
        return self._replica is not None and file_identity(self._path) == self._identity

    def evaluation(self, choice: KeyChoice) -> Evaluation:
        """The evaluation for this way of identifying rows."""
        found = self._evaluations.get(choice)
        if found is None:
            costs = SqliteCostModel(self._planning)
            rows = self._options.hydration_rows
            found = Evaluation(self.engine_schema, choice, self._held, self._effort, costs, rows)
            self._evaluations[choice] = found
        return found

    async def open(self, query: Query, choice: KeyChoice, wanted: Wanted = lambda: True) -> LiveQuery:
        """Join a running query, or start it: hydrate it and record its rows. Give it back with `release`.

        Call without the lock. A query that takes long is given up once `wanted` says no; then, or if it is too
        expensive, `SyncError` is raised.
        """
        is_large = has_more_parts(query, LARGE_QUERY)
        key = await in_background(partial(derive_key, query, choice, self.evaluation(choice))) if is_large else None
        async with self.lock:
            evaluation = self.evaluation(choice)
            key = key or query_key(query, choice, evaluation)
            live = self.live.get(key)
            if live is None and not is_large and not self._slow.is_starting(key):
                live = await self._start_soon(key, query, choice, evaluation)
            if live is not None:
                live.users += 1
                return live
        return await self._slow.open(key, query, choice, wanted)

    async def _start_soon(self, key: str, query: Query, choice: KeyChoice, evaluation: Evaluation) -> LiveQuery | None:
        """Start a query; None if it takes longer than others should wait."""
        try:
            return await self._start(key, query, choice, evaluation)
        except TooManyRows as error:
            raise too_many_rows(query, error) from None
        except Exception as error:
            if is_overrun(error):
                return None
            raise

    async def _start(self, key: str, query: Query, choice: KeyChoice, evaluation: Evaluation) -> LiveQuery:
        began = time.perf_counter()
        await self._hydrate(query, evaluation)
        live = LiveQuery(key, query, choice, evaluation)
        same = self._by_shared.get(live.shared)
        if same is not None:  # the same query in other words (1 and 1.0)
            evaluation.shared.unsubscribe(query)
            return same
        try:
            await record_hydration(live, self._file, self.records, self.version, self._pace)
        except BaseException:
            evaluation.shared.unsubscribe(query)
            raise
        self.enter(live, time.perf_counter() - began)
        return live

    def enter(self, live: LiveQuery, seconds: float) -> None:
        """Follow changes with a query that took so long to hydrate."""
        live.hydration = seconds
        self._hydrations.add(seconds * 1000)
        self.live[live.key] = self._by_shared[live.shared] = live

    def adopt(self, live: LiveQuery) -> LiveQuery:
        """Move a query that was hydrated elsewhere, at this version, into its evaluation here; or the one there is."""
        evaluation = self.evaluation(live.choice)
        shared = evaluation.shared.adopt(live.query, live.evaluation.shared)
        same = self._by_shared.get(shared)
        if same is not None:  # somebody has started the same query in other words
            evaluation.shared.unsubscribe(live.query)
            return same
        live.move_to(evaluation)
        return live

    async def _hydrate(self, query: Query, evaluation: Evaluation) -> None:
        await self._pace.pause()  # many short hydrations are one long stretch of work
        self._effort.limit_hydration(PATIENCE)
        try:
            hydration = evaluation.subscribe(query)
            try:
                for _ in hydration:
                    await self._pace.pause()
            except BaseException:
                evaluation.shared.unsubscribe(query)
                raise
        finally:
            self._effort.free()

    def aside(self, query: Query, choice: KeyChoice, turns: Turns, wanted: Wanted) -> Aside:
        """An evaluation of its own for a query, over the replica as it is now."""
        assert self._replica is not None
        seconds, rows = self._options.hydration_seconds, self._options.hydration_rows
        return Aside(self._replica, self.schema, choice, turns, wanted, table=query.table, seconds=seconds, rows=rows)

    async def examine(self, query: Query, choice: KeyChoice, wanted: Wanted, work: Callable[[Engine], T]) -> T:
        """What plain code finds out about a query, in an engine of its own. Call without the lock."""
        return await self._slow.examine(query, choice, wanted, work)

    def stop_starting(self) -> None:
        """Give up all queries that are being hydrated aside, soon; and start none."""
        self._slow.stop()

    @property
    def read_version(self) -> str:
        """The version up to which the replica's change log has been read by everybody here."""
        return min(self.version, self._slow.oldest_version or self.version)

    def recorded_ids(self) -> set[int]:
        """The queries in the file that are running or about to."""
        return {live.id for live in self.live.values()} | self._slow.recorded_ids()

    def release(self, lives: Iterable[LiveQuery]) -> None:
        """Stop those of these queries that nobody else uses."""
        ended = []
        for live in lives:
            live.users -= 1
            if not live.users and self.live.get(live.key) is live:
                del self.live[live.key]
                self._by_shared.pop(live.shared, None)  # not there if starting all queries again failed half way
                live.evaluation.shared.unsubscribe(live.query)
                ended.append(live)
        if ended:
            self.on_ended(ended)
            with self._file.transaction(self.version):
                for live in ended:
                    self.records.settle(live.recorded, self.version)

    async def advance(self) -> Step | None:
        """Go to the replica's newest version, however many commits away; None if it is this one."""
        after = self._spare
        hold_snapshot(after)
        state = read_state(after)
        if state.version == self.version:
            self._move(
                after, state.version
            )  # the same data; but an old snapshot would keep the replica's log from shrinking
            return None
        step = Step(state.version)
        began = time.perf_counter()
        try:
            step.anew = not await self._push_changes(after, step)
        except ChangesForgotten:
            step.anew = True
        except Exception as error:
            if is_full(error):
                raise
            # A change that a pipeline cannot take leaves it half way: start all of them again, and see which can run.
            log.exception(
                "a change between %s and %s cannot be evaluated; queries start anew", self.version, step.version
            )
            step.anew = True
        self._move(after, state.version)
        if step.anew:
            await self._start_anew(step)
        self.on_ended(step.failed)
        await self._write(step)
        self._note_update(step, time.perf_counter() - began)
        return step

    def _note_update(self, step: Step, seconds: float) -> None:
        self._updates.add(seconds * 1000)
        for live in step.patches:
            live.note_update(seconds)

    def metrics(self) -> dict[str, Any]:
        """How long queries took to start and to follow changes, in milliseconds."""
        return {
            "query-materialization-server": self._hydrations.to_json(),
            "query-update-server": self._updates.to_json(),
        }

    async def _push_changes(self, after: sqlite3.Connection, step: Step) -> bool:
        """Push what is between the two snapshots; False if pipelines must start anew instead."""
        self._pace.begin()
        self._effort.limit_pushes(self._options.push_seconds)
        try:
            return await self._push_limited(after, step)
        finally:
            self._effort.free()

    async def _push_limited(self, after: sqlite3.Connection, step: Step) -> bool:
        read = frozenset[str]().union(*(each.stores for each in self._evaluations.values()))
        net = NetChanges(self._key_of)
        changes = changes_between(after, self.schema, self.version, step.version, read | self._watched)
        async for _, table, change in self._pace.sliced(changes, every=16):
            if isinstance(change, Truncate | SchemaChanged):
                return False
            if table in self._watched:
                step.watched.append((table, change))
            if table in read:
                net.note(table, change)
                if len(net) >= WINDOW:
                    await self._push(net)
        await self._push(net)
        for evaluation in self._evaluations.values():
            touched = evaluation.settle()
            self._drop_failed(evaluation, step)
            for shared in touched:
                live = self._by_shared[shared]
                patches = await self._pace.collected(live.patches())
                if patches:
                    step.patches[live] = patches
        return True

    def _drop_failed(self, evaluation: Evaluation, step: Step) -> None:
        """Stop the queries that could not take a change."""
        for shared, error in evaluation.shared.failed.items():
            live = self._by_shared.pop(shared)
            del self.live[live.key]
            step.failed[live] = too_slow(live.query) if is_overrun(error) else error
            log.warning("a query on %s was stopped by a change: %s", live.query.table, error)
        evaluation.shared.failed.clear()

    async def _push(self, net: NetChanges) -> None:
        async for table, change in self._pace.sliced(net.drain(), every=1):
            self._effort.note_change()
            for evaluation in self._evaluations.values():
                if table in evaluation.stores:
                    evaluation.push(table, change)

    def _key_of(self, table: str) -> KeyOf:
        """What identifies the rows of a table that is being read."""
        return next(each.stores[table].key for each in self._evaluations.values() if table in each.stores)

    def _move(self, after: sqlite3.Connection, version: str) -> None:
        """Read the next snapshot from now on."""
        for evaluation in self._evaluations.values():
            evaluation.move_to(after)
        release_snapshot(self._held)
        self._held, self._spare = after, self._held
        if version != self.version:
            self.version = version
            self.moved.set()
            self.moved = asyncio.Event()

    async def _start_anew(self, step: Step) -> None:
        """Start all queries again and find what is different from what is recorded."""
        step.patches.clear()
        step.watched.clear()
        self._read_schema()
        for live in list(self.live.values()):
            try:
                evaluation = self.evaluation(live.choice)
                await self._hydrate(live.query, evaluation)
                live.move_to(evaluation)
                patches = await record_hydration(live, self._file, self.records, self.version, self._pace)
            except Exception as error:
                if is_full(error):  # no fault of the query
                    raise
                log.warning("a query on %s cannot run any more: %s", live.query.table, error)
                del self.live[live.key]
                step.failed[live] = too_slow(live.query) if is_overrun(error) else error
            else:
                self._by_shared[live.shared] = live
                if patches:
                    step.patches[live] = patches

    async def _write(self, step: Step) -> None:
        """Record what the step did to all queries, in one transaction unless there is much of it.

        Nobody has been told of the step yet, so one that is recorded in part is like none: the rest is found, as a
        difference, when the queries start again.
        """
        if step.anew or not (step.patches or step.watched):
            return
        for batch in _batches(step.patches):
            with self._file.transaction(step.version):
                for live, patches in batch:
                    self.records.write(live.recorded, step.version, [patch.change() for patch in patches])
            await self._pace.pause()


def too_slow(query: Query) -> SyncError:
    """Tells whoever has a query to come again, and have it hydrated without anybody waiting for it."""
    return SyncError(ErrorKind.REHOME, f"The query on {query.table!r} takes too long to follow changes; connect again")


def _batches(patches: dict[LiveQuery, list[Patch]]) -> Iterator[list[tuple[LiveQuery, list[Patch]]]]:
    """The patches, for one transaction each; at least one, though it be empty."""
    batch: list[tuple[LiveQuery, list[Patch]]] = []
    size = 0
    for live, found in patches.items():
        for start in range(0, len(found), BATCH):
            part = found[start : start + BATCH]
            if batch and size + len(part) > BATCH:
                yield batch
                batch, size = [], 0
            batch.append((live, part))
            size += len(part)
    yield batch
