"""The inline runner: one process, no cluster, the same steps as everywhere else.

It takes a snapshot if one is due — the log has no generation, a new one is asked for, a change cannot travel in the
stream — and then follows the tail until the next is due. It stops between transactions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.log import LogWriter
from changesource_sdk.changelog.spool.parts import LocalPlace, PartPlace
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.append import append_tail
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.compaction.scheduler import Compactor
from changesource_sdk.pipeline.encoding.transactions import SPILL_BYTES
from changesource_sdk.pipeline.recovery import Recovery, Stopped, snapshot_due
from changesource_sdk.pipeline.snapshot.resume import Unfinished
from changesource_sdk.pipeline.snapshot.take import PartsWriter, take_snapshot, write_parts_here
from changesource_sdk.policies.compaction import NEVER, CompactionPolicy
from service_kit.backoff import Backoff


class InlineRunner:
    """Runs one adapter into one log until `stop` is set. One `run` at a time."""

    def __init__(
        self,
        make_adapter: Callable[[], Adapter],
        store: LogStore,
        *,
        stop: threading.Event | None = None,
        backoff: Backoff | None = None,
        spill_bytes: int = SPILL_BYTES,
        compaction: CompactionPolicy = NEVER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stop = stop or threading.Event()
        self._make_adapter = make_adapter
        self._store = store
        self._spill_bytes = spill_bytes
        self._clock = clock
        self._stage = Stage(store.reports, "pipeline", clock)
        self._recovery = Recovery(self._store, self._stage, self.stop, backoff or Backoff())
        self._compactor = Compactor(store, LocalLane(), compaction, self.stop, clock=clock)

    def run(self) -> None:
        """Run until told to stop. Raises only what trying again cannot mend: a state directory, a newer writer."""
        self._store.layout.create()
        self._stage.flush()
        with self._compactor.running():
            self._recovery.run(self._step)
        self._stage.update(state="stopped")

    def _step(self) -> bool:
        writer = self._store.open_writer(lambda: int(self._clock() * 1_000_000))
        try:
            with opened(self._make_adapter) as adapter:
                self._follow(writer, adapter)
        finally:
            writer.close()
        return True

    def _follow(self, writer: LogWriter, adapter: Adapter) -> None:
        """A snapshot if one is due, then the tail, until the next is due."""
        above = snapshot_due(self._store, writer)
        if above is not None:
            # This runner starts over; what another left unfinished is of no use.
            Unfinished(self._store.layout).forget()
            snapshot_into_log(adapter, writer, self._store, self._stage, self.stop, above, self._clock)
            self._recovery.progressed()
        append_tail(
            adapter,
            writer,
            self._store,
            self._stage,
            self.stop,
            progressed=self._recovery.progressed,
            spill_bytes=self._spill_bytes,
        )


def snapshot_into_log(
    adapter: Adapter,
    writer: LogWriter,
    store: LogStore,
    stage: Stage,
    stop: threading.Event,
    above: str,
    clock: Callable[[], float],
    write_parts: PartsWriter = write_parts_here,
    unfinished: Unfinished | None = None,
    place_of: Callable[[Path], PartPlace] = LocalPlace,
) -> None:
    """Take a snapshot above a watermark, reporting progress, and answer whoever asked for it."""

    def rows_done(rows: int) -> None:
        stage.update(rows=rows)
        if stop.is_set():
            raise Stopped

    stage.start("snapshot", 0)
    with stage.beating():
        record = take_snapshot(
            adapter,
            writer,
            store.layout,
            lambda: clock() * 1000,
            above=above,
            begin=partial(stage.start, "snapshot"),
            rows_done=rows_done,
            part_done=lambda parts: stage.update(done=parts),
            write_parts=write_parts,
            unfinished=unfinished,
            place_of=place_of,
        )
    store.requests.answer_snapshot(record.watermark)
    stage.update(watermark=record.watermark, position=record.position)
