"""The Spark runner: snapshots and the tail as Spark jobs, driven from one process.

The driver takes snapshots when they are due (`snapshot`) and otherwise keeps one resident task following the source
(`resident`), or a streaming query if its mappings use Spark SQL (`micro_batch`), or follows it itself if changes are
Spark jobs (`polling`). It recovers like every runner: report, wait, go on after the last position in the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from changesource_sdk.changelog.store import LogStore
from changesource_sdk.observe.log_socket import LogAddress, LogReceiver
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.adapter_factory import adapter_factory, opened
from changesource_sdk.pipeline.compaction.scheduler import Compactor
from changesource_sdk.pipeline.inline import snapshot_into_log
from changesource_sdk.pipeline.mapped import mappings_of
from changesource_sdk.pipeline.mapping.declare import fingerprint, needs_spark
from changesource_sdk.pipeline.recovery import Recovery, snapshot_due
from changesource_sdk.pipeline.snapshot.resume import Unfinished
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
        adapter: str,
        settings: Mapping[str, object],
        store: LogStore,
        *,
        stop: threading.Event | None = None,
        backoff: Backoff | None = None,
        compaction: CompactionPolicy = NEVER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stop = stop or threading.Event()
        self._session = session
        self._context = session.sparkContext
        self._adapter = adapter
        self._settings = settings
        self._store = store
        self._clock = clock
        self._stage = Stage(store.reports, "pipeline", clock)
        self._recovery = Recovery(self._store, self._stage, self.stop, backoff or Backoff())
        lane = SparkLane(self._context, self.stop)
        self._compactor = Compactor(store, lane, compaction, self.stop, clock=clock)
        self._logs: LogAddress | None = None  # where tasks send what they log, while this runs

    def run(self) -> None:
        """Run until told to stop. Raises only what trying again cannot mend: a state directory, a newer writer."""
        self._store.layout.create()
        self._stage.flush()
        host = str(self._context.getConf().get("spark.driver.host", "127.0.0.1"))
        with LogReceiver(host) as logs, self._compactor.running():
            self._logs = logs.address
            self._recovery.run(self._step)
        self._stage.update(state="stopped")

    def _step(self) -> bool:
        self._snapshot_if_due()
        self._stage.flush()
        try:
            self._tail()
        finally:
            self._stage.take_over()
        return True

    def _tail(self) -> None:
        """Follow the source in the lane it needs."""
        if polling.is_needed(self._adapter, self._settings):
            follow = polling.follow
        elif needs_spark(mappings_of(self._adapter, self._settings)) is None:
            resident.follow(self._context, self._adapter, self._settings, self._store, self.stop, self._logs)
            return
        else:
            # Python data sources need pyarrow: only sources that use this lane should.
            from changesource_sdk.pipeline.spark.lanes import micro_batch

            follow = micro_batch.follow
        follow(
            DriverTail(
                self._session,
                self._adapter,
                self._settings,
                self._store,
                self._stage,
                self.stop,
                self._recovery.progressed,
                self._logs,
            )
        )

    def _source(self) -> str:
        """What a snapshot depends on besides the store; hashed, since settings may hold secrets."""
        mappings = fingerprint(mappings_of(self._adapter, self._settings))
        return sha256(repr((self._adapter, sorted(self._settings.items()), mappings)).encode()).hexdigest()

    def _snapshot_if_due(self) -> None:
        writer = self._store.open_writer(lambda: int(self._clock() * 1_000_000))
        try:
            above = snapshot_due(self._store, writer)
            unfinished = Unfinished(self._store.layout, self._source())
            if above is None:
                unfinished.forget()
                return
            with opened(adapter_factory(self._adapter, self._settings)) as adapter:
                parts = SparkParts(self._session, self._logs)
                snapshot_into_log(
                    adapter,
                    writer,
                    self._store,
                    self._stage,
                    self.stop,
                    above,
                    self._clock,
                    parts,
                    unfinished,
                    self._store.place,
                )
            self._recovery.progressed()
        finally:
            writer.close()
