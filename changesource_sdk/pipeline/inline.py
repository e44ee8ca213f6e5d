"""The inline runner: one process, no cluster, the same steps as everywhere else.

It takes a snapshot if one is due — the log has no generation, a new one is requested, a change cannot travel in the
stream — and then follows the tail until the next is due. It stops between transactions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.append import append_tail
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.compaction.scheduler import Compactor
from changesource_sdk.pipeline.encoding.transactions import SPILL_BYTES
from changesource_sdk.pipeline.recovery import Recovery, Stopped, snapshot_due
from changesource_sdk.pipeline.run import Run
from changesource_sdk.pipeline.snapshot.resume import Unfinished
from changesource_sdk.pipeline.snapshot.take import SnapshotLane, SnapshotProgress, take_snapshot
from changesource_sdk.policies.compaction import NEVER, CompactionPolicy
from service_kit.backoff import Backoff


class InlineRunner:
    """Runs one adapter into one log until `stop` is set. One `run` at a time."""

    def __init__(
        self,
        make_adapter: Callable[[], Adapter],
        log_store: LogStore,
        *,
        stop: threading.Event | None = None,
        backoff: Backoff | None = None,
        spill_bytes: int = SPILL_BYTES,
        compaction: CompactionPolicy = NEVER,
        clock: Callable[[], float] = time.time,
        on_bad_value: str = "",
    ) -> None:
        self.stop = stop or threading.Event()
        self._make_adapter = make_adapter
        stage = Stage(log_store.reports, "pipeline", clock)
        self._run = Run(log_store, stage, self.stop, clock, spill_bytes, on_bad_value)
        self._recovery = Recovery(self._run, backoff or Backoff())
        self._compactor = Compactor(log_store, LocalLane(), compaction, self.stop, clock=clock)

    def run(self) -> None:
        """Run until `stop` is set. Raises only what a retry cannot fix: a state directory, a newer writer."""
        self._run.log_store.layout.create()
        self._run.stage.flush()
        with self._compactor.running():
            self._recovery.run(self._step)
        self._run.stage.update(state="stopped")

    def _step(self) -> bool:
        with closing(self._run.open_writer()) as writer, opened(self._make_adapter) as adapter:
            self._follow(writer, adapter)
        return True

    def _follow(self, writer: LogWriter, adapter: Adapter) -> None:
        """A snapshot if one is due, then the tail, until the next is due."""
        log_store = self._run.log_store
        above = snapshot_due(log_store, writer)
        if above is not None:
            # This runner cannot resume; a snapshot that another runner left unfinished is removed.
            Unfinished(log_store.layout).forget()
            snapshot_into_log(self._run, adapter, writer, above)
            self._recovery.progressed()
        append_tail(self._run, adapter, writer, self._recovery.progressed)


def snapshot_into_log(
    run: Run, adapter: Adapter, writer: LogWriter, above: str, lane: SnapshotLane | None = None
) -> None:
    """Take a snapshot above a watermark, report its progress, and answer the request for it.

    Raises `Stopped` if the run stops meanwhile.
    """
    stage = run.stage
    progress = snapshot_progress(run)
    stage.start("snapshot", 0)
    rules = run.bad_value_rules(adapter)
    layout = run.log_store.layout
    with stage.beating():
        record = take_snapshot(
            adapter, writer, layout, run.now_ms, above=above, progress=progress, lane=lane, rules=rules
        )
    run.log_store.requests.answer_snapshot(record.watermark)
    # None of them is needed any more: a transaction before a snapshot does not come again.
    run.log_store.requests.withdraw_skips(rules.skips)
    stage.update(watermark=record.watermark, position=record.position)


def snapshot_progress(run: Run) -> SnapshotProgress:
    """Reports the progress of a snapshot in the run's stage, and raises `Stopped` if the run stops meanwhile."""
    stage = run.stage

    def rows_done(rows: int) -> None:
        stage.update(rows=rows)
        if run.stop.is_set():
            raise Stopped

    return SnapshotProgress(
        begin=partial(stage.start, "snapshot"),
        rows_done=rows_done,
        part_done=lambda parts: stage.update(done=parts),
    )
