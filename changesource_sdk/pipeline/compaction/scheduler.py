"""The compactor: watches how the log grows and compacts it when the policy says so, while the tail runs.

It is a thread of the runner's process. It only reads the log and writes files of its own, so it can fail, be killed or
be late without harm: what it makes counts once the log's writer has taken the offer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from changesource_sdk.changelog.files.lock import COMPACTING
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.reading import ranges
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import ChangesourceError, StateError
from changesource_sdk.observe.stages import BEAT_S, Stage
from changesource_sdk.pipeline.compaction.job import Lane, Progress, compact
from changesource_sdk.pipeline.recovery import Stopped
from changesource_sdk.policies.compaction import CompactionPolicy
from service_kit.backoff import Backoff
from service_kit.logs import event, logger

_log = logger("compaction")

POLL_S = 1.0
JOIN_S = 10.0
STAGE = "compaction"


@dataclass(slots=True)
class Growth:
    """How much the log grew since its newest snapshot. Only `update` writes the fields, in the compactor's thread."""

    base: str = ""  # watermark of the newest snapshot
    counted: str = ""  # watermark of the last transaction counted
    transactions: int = 0  # between `base` and `counted`
    bytes: int = 0  # of frames between `base` and `counted`
    snapshot_bytes: int = 0  # of the snapshot at `base`

    def update(self, log_store: LogStore, reader: Log) -> None:
        """Count what was appended since the last call; start again at 0 if there is a newer snapshot."""
        known, head = reader.snapshots(), reader.state().head
        if not known:
            return
        if known[-1].watermark != self.base:
            self.base = self.counted = known[-1].watermark
            self.transactions = self.bytes = 0
            self.snapshot_bytes = log_store.files.manifest(known[-1].directory).bytes
        for new in ranges(reader, self.counted, head, 1 << 62):
            self.transactions += new.transactions
            self.bytes += new.bytes
            self.counted = new.through


class Compactor:
    """Compacts one log until `stop` is set. One compaction at a time, and none while an offer waits."""

    def __init__(
        self,
        log_store: LogStore,
        lane: Lane,
        policy: CompactionPolicy,
        stop: threading.Event,
        *,
        poll_s: float = POLL_S,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log_store = log_store
        self._lane = lane
        self._policy = policy
        self._stop = stop
        self._poll_s = poll_s
        self._backoff = backoff or Backoff(first_s=1.0, last_s=300.0)
        self._clock = clock
        self._stage = Stage(log_store.reports, STAGE, clock)
        self._growth = Growth()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch and compact while inside; leave only when `stop` is set."""
        if self._policy.is_never:
            yield
            return
        thread = threading.Thread(target=self._run, name="changesource-compactor", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(JOIN_S)

    def _run(self) -> None:
        pause = self._poll_s
        while not self._pause(pause):
            try:
                self.poll()
                self._backoff.reset()
                pause = self._poll_s
            except Stopped:
                return
            except Exception as error:
                # Whatever it is (a full disk, damaged files), the log is served and grows without compaction.
                pause = self._backoff.seconds()
                failures = self._backoff.failures
                event(_log, logging.WARNING, "compaction failed, trying again later", error=error, failures=failures)

    def _pause(self, seconds: float) -> bool:
        """Wait; whether to stop. A stage that failed shows that it will try again."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._stop.wait(min(left, BEAT_S)):
                return True
            if self._stage.report.state == "backing-off":
                self._stage.beat()
        return self._stop.is_set()

    def poll(self) -> str | None:
        """Compact if it is due and no other process does; returns the watermark of the new snapshot, or None."""
        if self._log_store.handoff.is_pending() or not self._is_due():
            return None
        try:
            with self._log_store.compacting():
                event(
                    _log, logging.INFO, "compacting", transactions=self._growth.transactions, bytes=self._growth.bytes
                )
                return compact_and_report(self._log_store, self._lane, self._stage, self._clock)
        except StateError as error:
            if error.code != COMPACTING:
                raise
            return None

    def _is_due(self) -> bool:
        reader = self._log_store.open_log()
        try:
            self._growth.update(self._log_store, reader)
        finally:
            reader.close()
        growth = self._growth
        return self._policy.is_due(growth.transactions, growth.bytes, growth.snapshot_bytes)


def compact_and_report(log_store: LogStore, lane: Lane, stage: Stage, clock: Callable[[], float]) -> str | None:
    """Compact now and report progress; the watermark on offer, None if there is nothing to compact.

    The caller holds `store.compacting()`. What a failed compaction wrote is removed.
    """
    started = clock()
    stage.start("compacting", 0)
    progress = Progress(
        planned=lambda units: stage.update(total=stage.report.total + units),
        done=lambda units: stage.update(done=units),
    )
    try:
        watermark = compact(log_store, lane, lambda: clock() * 1000, progress=progress)
    except BaseException as error:
        with contextlib.suppress(OSError, ChangesourceError):
            log_store.handoff.withdraw()
        if isinstance(error, ChangesourceError):
            stage.failed(error)
        else:
            stage.update(state="idle")
        raise
    stage.recovered()
    stage.update(state="idle", watermark=watermark)
    if watermark is not None:
        seconds = round(clock() - started, 3)
        event(_log, logging.INFO, "a compacted snapshot is ready", watermark=watermark, seconds=seconds)
    return watermark
