"""The runner of several sources in one log: the log's owner, with a lane for each source.

The owner opens the log, which fences off everything before it, starts a generation if one is due, drops the tables of
sources that are no longer configured, and then keeps the lanes running. Between, it does what only the owner may do:
prune, register compacted snapshots, answer requests. A lane fails and recovers alone; only a failure of the log itself
is the owner's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from changesource_sdk.adapter import DropTable
from changesource_sdk.changelog.log import EncodedTransaction, SourceRead, SourceRow
from changesource_sdk.changelog.source_writer import merged_schemas
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.spool.snapshots import Manifest
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.append import POLL_S
from changesource_sdk.pipeline.compaction.job import Lane as CompactionLane
from changesource_sdk.pipeline.compaction.scheduler import Compactor
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.schema_frames import change_frames
from changesource_sdk.pipeline.encoding.transactions import SPILL_BYTES
from changesource_sdk.pipeline.recovery import Recovery, Stopped, snapshot_due
from changesource_sdk.pipeline.run import Run
from changesource_sdk.pipeline.snapshot.resume import Unfinished
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.sources.lane import Lanes, SourceLane
from changesource_sdk.pipeline.upkeep import LogUpkeep
from changesource_sdk.policies.compaction import NEVER, CompactionPolicy
from changesource_sdk.positions import Position
from service_kit.backoff import Backoff
from service_kit.logs import event, logger

_log = logger("runner")


class SourcesRunner:
    """Runs several named sources into one log until `stop` is set. One `run` at a time."""

    def __init__(
        self,
        sources: Sequence[SourceSpec],
        log_store: LogStore,
        lanes: Lanes,
        compaction_lane: CompactionLane,
        *,
        stop: threading.Event | None = None,
        backoff: Callable[[], Backoff] = Backoff,
        spill_bytes: int = SPILL_BYTES,
        compaction: CompactionPolicy = NEVER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`backoff` makes the delays of one source, or of the owner."""
        self.stop = stop or threading.Event()
        self._sources = sources
        self._lanes = lanes
        self._backoff = backoff
        self._run = Run(log_store, Stage(log_store.reports, "pipeline", clock), self.stop, clock, spill_bytes)
        self._recovery = Recovery(self._run, backoff())
        self._compactor = Compactor(log_store, compaction_lane, compaction, self.stop, clock=clock)

    def run(self) -> None:
        """Run until `stop` is set. Raises only what a retry cannot fix: a state directory, a newer writer."""
        self._run.log_store.layout.create()
        self._run.stage.flush()
        with self._compactor.running():
            self._recovery.run(self._step)
        self._run.stage.update(state="stopped")

    def _step(self) -> bool:
        log_store = self._run.log_store
        with closing(self._run.open_writer()) as writer:
            lanes = [self._lane(writer, source) for source in self._sources]
            above = snapshot_due(log_store, writer, is_shared=True)
            if above is not None:
                self._start_generation(writer, above, lanes)
            self._drop_unclaimed(writer)
            self._recovery.progressed()
            self._keep_running(writer, lanes)
        return True

    def _lane(self, writer: LogWriter, source: SourceSpec) -> SourceLane:
        return SourceLane(self._run, writer.state().epoch, source, self._lanes, self._backoff())

    def _keep_running(self, writer: LogWriter, lanes: Sequence[SourceLane]) -> None:
        """Run the lanes until the run stops or a generation is requested. Raises what concerns the log as a whole."""
        log_store, stage = self._run.log_store, self._run.stage
        upkeep = LogUpkeep(log_store, writer)
        stage.update(state="tailing", watermark=writer.state().head)
        stage.recovered()
        try:
            for lane in lanes:
                lane.start()
            while not self.stop.wait(POLL_S):
                if log_store.requests.pending_snapshot() is not None:
                    return
                for lane in lanes:
                    if lane.error is not None:
                        raise lane.error
                upkeep.step()
                head = writer.head()
                if head != stage.report.watermark:
                    stage.update(watermark=head)
                stage.beat()
        finally:
            end_all(lanes)

    def _start_generation(self, writer: LogWriter, above: str, lanes: Sequence[SourceLane]) -> None:
        """Read all sources, and start a generation with those that could be read. Raises the first error if none."""
        # Sources are read from the beginning; a snapshot of a single upstream that was left unfinished is removed.
        Unfinished(self._run.log_store.layout).forget()
        self._run.stage.start("snapshot", len(lanes))
        with self._run.stage.beating():
            results = self._read_all(lanes)
        if self.stop.is_set():
            raise Stopped
        reads: list[SourceRead] = []
        errors: list[BaseException] = []
        schema = ""
        for lane, result in zip(lanes, results, strict=True):
            try:
                if isinstance(result, BaseException):
                    raise result
                schema = merged_schemas([*(read.row for read in reads), result.row])
                reads.append(result)
            except ChangesourceError as error:
                lane.run.stage.failed(error)
                errors.append(error)
                if isinstance(result, SourceRead) and isinstance(result.transaction.data, BlockFile):
                    result.transaction.data.path.unlink(missing_ok=True)
        if not reads:
            raise errors[0]
        created_ms, watermark = self._run.now_ms(), writer.next_generation(above)
        directory = _empty_snapshot(self._run.log_store, watermark, created_ms)
        record = writer.start_shared_generation(directory, created_ms, reads, schema)
        self._run.log_store.requests.answer_snapshot(record.watermark)
        names = ", ".join(read.row.name for read in reads)
        event(_log, logging.INFO, "a generation starts", watermark=record.watermark, sources=names, failed=len(errors))

    def _read_all(self, lanes: Sequence[SourceLane]) -> list[SourceRead | BaseException]:
        """Read every source in a thread; what each gave or raised, in order."""
        results: list[SourceRead | BaseException] = [Stopped() for _ in lanes]

        def read(number: int, lane: SourceLane) -> None:
            try:
                results[number] = lane.read_first()
            except BaseException as error:
                results[number] = error

        threads = [
            threading.Thread(target=read, args=each, name=f"changesource-read-{each[0]}", daemon=True)
            for each in enumerate(lanes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not self.stop.is_set():
                thread.join(POLL_S)
            self._run.stage.update(done=1)
        if self.stop.is_set():
            end_all(lanes)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ChangesourceError | Stopped):
                raise result
        return results

    def _drop_unclaimed(self, writer: LogWriter) -> None:
        """Drop the tables of the log that no configured source has: of one that was removed, or of a time when the log
        had one upstream.
        """
        rows, names = writer.sources(), {source.name for source in self._sources}
        claimed = [row for row in rows.values() if row.name in names]
        state = writer.state()
        remaining = merged_schemas(claimed)
        kept, schema = ConsumerSchema.from_json(remaining), ConsumerSchema.from_json(state.schema)
        dropped = [name for name in schema.tables if name not in kept.tables]
        if not dropped:
            return
        frames = [frame for name in dropped for frame in change_frames(schema, DropTable(name))]
        position: Position = ["dropped", state.epoch]
        transaction = EncodedTransaction(position, self._run.now_ms(), None, b"".join(frames), len(frames))
        removed = [
            row._replace(position=None, schema="", fingerprint="") for row in rows.values() if row.name not in names
        ]
        writer.append_shared(SourceRead(SourceRow(""), transaction), removed, remaining)
        event(_log, logging.WARNING, "tables of removed sources are dropped", tables=", ".join(dropped))


def end_all(lanes: Sequence[SourceLane]) -> None:
    """End lanes together, so that their delays do not add up."""
    for lane in lanes:
        lane.run.stop.set()
    for lane in lanes:
        lane.end()


def _empty_snapshot(log_store: LogStore, watermark: str, created_ms: float) -> Path:
    """The snapshot that a shared generation starts with; all rows come in transactions after it."""
    directory = snapshots.stage(log_store.layout.spool, watermark)
    part = snapshots.write_frames(directory, 0, ())
    return snapshots.complete(directory, Manifest(watermark, None, "", created_ms, (part,)))
