"""The Spark runner: snapshots and the tail as Spark jobs, driven from one process.

The driver takes snapshots when they are due (`snapshot`) and otherwise keeps one resident task following the source
(`resident`), or a streaming query if its mappings use Spark SQL (`micro_batch`), or follows it itself if changes are
Spark jobs (`polling`). It recovers like every runner: report, wait, continue after the last position in the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from changesource_sdk.changelog.store import LogStore
from changesource_sdk.observe.log_socket import LogReceiver, LogReceiverAddress
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.compaction.scheduler import Compactor
from changesource_sdk.pipeline.inline import snapshot_into_log
from changesource_sdk.pipeline.mapping.declare import needs_spark
from changesource_sdk.pipeline.recovery import Recovery, snapshot_due
from changesource_sdk.pipeline.run import Run
from changesource_sdk.pipeline.snapshot.resume import Unfinished
from changesource_sdk.pipeline.snapshot.take import SnapshotLane
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.lanes import polling, resident
from changesource_sdk.pipeline.spark.lanes.compaction import SparkLane
from changesource_sdk.pipeline.spark.lanes.driver_tail import DriverTail
from changesource_sdk.pipeline.spark.lanes.snapshot import SparkParts
from changesource_sdk.policies.compaction import NEVER, CompactionPolicy
from service_kit.backoff import Backoff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRunner:
    """Runs one adapter into one log until `stop` is set. The session is the caller's."""

    def __init__(
        self,
        session: SparkSession,
        source: SourceSpec,
        log_store: LogStore,
        *,
        stop: threading.Event | None = None,
        backoff: Backoff | None = None,
        compaction: CompactionPolicy = NEVER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stop = stop or threading.Event()
        self._session = session
        self._context = session.sparkContext
        self._source = source
        stage = Stage(log_store.reports, "pipeline", clock)
        self._run = Run(log_store, stage, self.stop, clock, on_bad_value=source.on_bad_value)
        self._recovery = Recovery(self._run, backoff or Backoff())
        lane = SparkLane(self._context, self.stop)
        self._compactor = Compactor(log_store, lane, compaction, self.stop, clock=clock)
        # Where tasks send what they log; set by `run`, None before.
        self._logs: LogReceiverAddress | None = None

    def run(self) -> None:
        """Run until `stop` is set. Raises only what a retry cannot fix: a state directory, a newer writer."""
        self._run.log_store.layout.create()
        self._run.stage.flush()
        host = str(self._context.getConf().get("spark.driver.host", "127.0.0.1"))
        with LogReceiver(host) as logs, self._compactor.running():
            self._logs = logs.address
            self._recovery.run(self._step)
        self._run.stage.update(state="stopped")

    def _step(self) -> bool:
        self._snapshot_if_due()
        self._run.stage.flush()
        try:
            follow_source(DriverTail(self._run, self._session, self._source, self._recovery.progressed, self._logs))
        finally:
            self._run.stage.take_over()
        return True

    def _snapshot_if_due(self) -> None:
        log_store = self._run.log_store
        with closing(self._run.open_writer()) as writer:
            above = snapshot_due(log_store, writer)
            unfinished = Unfinished(log_store.layout, self._source.identity())
            if above is None:
                unfinished.forget()
                return
            parts = SparkParts(self._session, self._logs)
            lane = SnapshotLane(parts, log_store.files.part_store, unfinished)
            with opened(self._source.factory()) as adapter:
                snapshot_into_log(self._run, adapter, writer, above, lane)
            self._recovery.progressed()


def follow_source(tail: DriverTail) -> None:
    """Follow a source in the lane it needs until its run stops or a snapshot is due; raises what ended it otherwise."""
    source = tail.source
    if polling.is_needed(source):
        polling.follow(tail)
    elif needs_spark(source.loaded_mappings()) is None:
        resident.follow(tail.run, tail.session.sparkContext, source, tail.logs)
    else:
        # Python data sources need pyarrow: only sources that use this lane should.
        from changesource_sdk.pipeline.spark.lanes import micro_batch

        micro_batch.follow(tail)


class SparkLanes:
    """Several sources on Spark: each is read by tasks, and followed in the lane it needs. `logs` is where tasks send
    what they log.
    """

    def __init__(self, session: SparkSession, log_store: LogStore, logs: LogReceiverAddress | None) -> None:
        self._session = session
        self._log_store = log_store
        self._logs = logs

    def snapshot_lane(self, source: SourceSpec) -> SnapshotLane:
        """Parts by tasks, to where all hosts see them."""
        return SnapshotLane(SparkParts(self._session, self._logs, source.name), self._log_store.files.part_store)

    def follow(self, run: Run, source: SourceSpec, progressed: Callable[[], None]) -> None:
        """In the lane that the source needs; the driver's thread waits for it."""
        run.stage.flush()
        try:
            follow_source(DriverTail(run, self._session, source, progressed, self._logs))
        finally:
            run.stage.take_over()
