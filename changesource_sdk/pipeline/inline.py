"""The inline runner: one process, no cluster, the same steps as everywhere else.

It takes a snapshot if one is due — the log has no generation, a new one is asked for, a change cannot travel in the
stream — and then follows the tail until the next is due. It stops between transactions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.log import LogWriter
from changesource_sdk.changelog.requests import answer_request
from changesource_sdk.changelog.sqlite_writer import open_writer
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.appending import append_tail
from changesource_sdk.pipeline.recovery import Backoff, Recovery, Stopped, snapshot_due
from changesource_sdk.pipeline.snapshotting import PartsWriter, take_snapshot, write_parts_here
from changesource_sdk.pipeline.transactions import SPILL_BYTES


class InlineRunner:
    """Runs one adapter into one state directory until `stop` is set. One `run` at a time."""

    def __init__(
        self,
        make_adapter: Callable[[], Adapter],
        state_directory: Path,
        *,
        stop: threading.Event | None = None,
        backoff: Backoff | None = None,
        spill_bytes: int = SPILL_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stop = stop or threading.Event()
        self._make_adapter = make_adapter
        self._layout = StateDirectory(state_directory)
        self._spill_bytes = spill_bytes
        self._clock = clock
        self._stage = Stage(state_directory, "pipeline", clock)
        self._recovery = Recovery(self._layout, self._stage, self.stop, backoff or Backoff())

    def run(self) -> None:
        """Run until told to stop. Raises only what trying again cannot mend: a state directory, a newer writer."""
        self._layout.create()
        self._stage.flush()
        self._recovery.run(self._step)
        self._stage.update(state="stopped")

    def _step(self) -> bool:
        writer = open_writer(self._layout.root, lambda: int(self._clock() * 1_000_000))
        try:
            with opened(self._make_adapter) as adapter:
                self._follow(writer, adapter)
        finally:
            writer.close()
        return True

    def _follow(self, writer: LogWriter, adapter: Adapter) -> None:
        """A snapshot if one is due, then the tail, until the next is due."""
        above = snapshot_due(self._layout, writer)
        if above is not None:
            snapshot_into_log(adapter, writer, self._layout, self._stage, self.stop, above, self._clock)
            self._recovery.progressed()
        append_tail(
            adapter,
            writer,
            self._layout,
            self._stage,
            self.stop,
            progressed=self._recovery.progressed,
            spill_bytes=self._spill_bytes,
        )


def snapshot_into_log(
    adapter: Adapter,
    writer: LogWriter,
    layout: StateDirectory,
    stage: Stage,
    stop: threading.Event,
    above: str,
    clock: Callable[[], float],
    write_parts: PartsWriter = write_parts_here,
) -> None:
    """Take a snapshot above a watermark, reporting progress, and answer whoever asked for it."""

    def rows_done(rows: int) -> None:
        stage.update(rows=rows)
        if stop.is_set():
            raise Stopped

    record = take_snapshot(
        adapter,
        writer,
        layout,
        lambda: clock() * 1000,
        above=above,
        begin=stage.start_snapshot,
        rows_done=rows_done,
        part_done=lambda parts: stage.update(done=parts),
        write_parts=write_parts,
    )
    answer_request(layout.root, record.watermark)
    stage.update(watermark=record.watermark, position=record.position)
