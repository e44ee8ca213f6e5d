"""One source of several, in a thread of its own: read it when that is due, follow it, and try again alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Protocol

from changesource_sdk.changelog.log import SourceRead, SourceRow
from changesource_sdk.changelog.source_writer import SourceWriter
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.observe.stages import Stage, stage_of_source
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.append import append_tail
from changesource_sdk.pipeline.inline import snapshot_progress
from changesource_sdk.pipeline.recovery import Recovery, Stopped
from changesource_sdk.pipeline.run import Run
from changesource_sdk.pipeline.snapshot.take import SnapshotLane
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.sources.read import read_source
from service_kit.backoff import Backoff

JOIN_S = 20.0


class Lanes(Protocol):
    """Where sources are read and followed: in this process, or on Spark. Threads share it."""

    def snapshot_lane(self, source: SourceSpec) -> SnapshotLane:
        """How the parts of a source are written."""

    def follow(self, run: Run, source: SourceSpec, progressed: Callable[[], None]) -> None:
        """Append what the source sends until the run stops or the source must be read; raises what ended it."""


class InlineLanes:
    """All in this process."""

    def snapshot_lane(self, source: SourceSpec) -> SnapshotLane:
        """Part after part."""
        return SnapshotLane()

    def follow(self, run: Run, source: SourceSpec, progressed: Callable[[], None]) -> None:
        """In the caller's thread, with one more that reads."""
        with closing(run.open_source_writer()) as writer, opened(source.factory()) as adapter:
            append_tail(run, adapter, writer, progressed)


def must_be_read(source: SourceSpec, row: SourceRow | None) -> bool:
    """Whether the log has no position of a source, or rows that another mapping made."""
    return row is None or row.position is None or row.fingerprint != source.fingerprint()


class SourceLane:
    """Reads and follows one source until it is ended. `owner` is the run of the log's owner, `epoch` its epoch."""

    def __init__(self, owner: Run, epoch: int, source: SourceSpec, lanes: Lanes, backoff: Backoff) -> None:
        self.source = source
        stage = Stage(owner.log_store.reports, stage_of_source(source.name), owner.clock)
        own = replace(owner, stage=stage, stop=threading.Event(), on_bad_value=source.on_bad_value)
        self.run = replace(own, source=source.name, epoch=epoch)
        # What a retry cannot fix, or damage of the log, which concerns its owner; set by the thread before it ends.
        self.error: BaseException | None = None
        self._lanes = lanes
        self._recovery = Recovery(self.run, backoff)
        self._thread = threading.Thread(target=self._run, name=f"changesource-{source.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Wait until the thread is over; one that is stuck in its upstream is left behind, and fenced off later."""
        self.run.stop.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
        self.run.stage.update(state="stopped")

    def read_first(self) -> SourceRead:
        """Read the source for a new generation, in the caller's thread. Raises what prevents it."""
        with closing(self.run.open_source_writer()) as writer:
            return self._read(writer, is_first=True)

    def _run(self) -> None:
        try:
            self.run.stage.flush()
            self._recovery.run(self._step)
        except BaseException as error:
            self.error = error

    def _step(self) -> bool:
        try:
            self._read_if_due()
            self._lanes.follow(self.run, self.source, self._recovery.progressed)
        except (ChangesourceError, Stopped):
            raise
        except Exception as error:
            raise ChangesourceError(
                "source-failed",
                f"{type(error).__name__}: {error}",
                where=f"source {self.source.name}",
                fix="report this; the source is tried again, and the others are not affected",
            ) from error
        return True

    def _read_if_due(self) -> None:
        with closing(self.run.open_source_writer()) as writer:
            if not must_be_read(self.source, writer.row):
                return
            read = self._read(writer, is_first=False)
            watermark = writer.append_read(read)
        self.run.stage.recovered()
        self.run.stage.update(watermark=watermark, position=read.transaction.position)
        self._recovery.progressed()

    def _read(self, writer: SourceWriter, *, is_first: bool) -> SourceRead:
        progress = snapshot_progress(self.run)
        self.run.stage.start("snapshot", 0)
        with self.run.stage.beating(), opened(self.source.factory()) as adapter:
            lane = self._lanes.snapshot_lane(self.source)
            return read_source(self.run, adapter, writer, self.source.fingerprint(), lane, progress, is_first=is_first)
