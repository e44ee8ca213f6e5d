"""Recovery: how a runner continues after a failure.

A runner is a step that is repeated until it is stopped. A step opens the log, continues after the last position it
holds, and returns when something new is due. If it raises, the failure is reported in the stage file, and the step is
tried again after a growing delay; a damaged log is set aside first. Only what a retry cannot fix ends the runner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from time import monotonic

from changesource_sdk.changelog.coordination.consumers import highest_held, is_beyond
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.errors import ChangesourceError, CorruptLog, ResyncRequired, StaleWriter
from changesource_sdk.observe.warnings import NEW_SNAPSHOT, warn
from changesource_sdk.pipeline.run import Run
from protocol.watermark import EMPTY
from service_kit.backoff import Backoff
from service_kit.logs import event, logger

_log = logger("runner")

SKIP_POLL_S = 0.5
"""How often a runner that waits after a failure polls for a request to skip, in seconds."""


class Stopped(BaseException):
    """Leaves a long step when the runner is stopped; not an `Exception`, so no adapter swallows it."""


class Recovery:
    """Repeats a step until `stop` is set. Invariant: between two steps nothing is open.

    Errors are reported in the stage file, where the process that started the runner reads them; their traces are logged
    for debugging.
    """

    def __init__(self, run: Run, backoff: Backoff) -> None:
        self._run = run
        self._log_store = run.log_store
        self._stage = run.stage
        self._stop = run.stop
        self._backoff = backoff

    def progressed(self) -> None:
        """Something worked: the next failure is the first again."""
        self._backoff.reset()

    def run(self, step: Callable[[], bool]) -> None:
        """Repeat `step` until it returns False or `stop` is set. Raises only what a retry cannot fix."""
        while not self._stop.is_set():
            try:
                if not step():
                    return
            except Stopped:
                return
            except StaleWriter as error:
                self._stage.failed(error)
                raise
            except CorruptLog as error:
                if self._run.source:
                    # There is one log: what to do with it is its owner's decision.
                    raise
                self._report_and_wait(error)
            except ResyncRequired as error:
                where = f"source {self._run.source}" if self._run.source else error.where
                warn(_log, NEW_SNAPSHOT, where, "a new snapshot is taken", reason=error.message)
                self._run.require_snapshot(str(error))
            except ChangesourceError as error:
                self._report_and_wait(error)

    def _report_and_wait(self, error: ChangesourceError) -> None:
        delay = self._backoff.seconds()
        event(_log, logging.INFO, "trying again", code=error.code, delay=delay, failures=self._backoff.failures)
        _log.debug("what failed", exc_info=error)
        self._stage.failed(error)
        if isinstance(error, CorruptLog) and (kept := self._log_store.set_aside()):
            event(_log, logging.ERROR, "the damaged log was set aside, a new snapshot is taken", kept_as=kept)
        self._wait(delay, for_skip=error.refused is not None)

    def _wait(self, delay: float, *, for_skip: bool) -> None:
        """Wait so many seconds, or until the run stops, or until an operator asks to continue without something."""
        pending = self._log_store.requests.pending_skips() if for_skip else []
        deadline = monotonic() + delay
        while not self._stop.wait(min(SKIP_POLL_S, max(0.0, deadline - monotonic()))) and monotonic() < deadline:
            if for_skip and self._log_store.requests.pending_skips() != pending:
                return


def snapshot_due(log_store: LogStore, writer: LogWriter, *, is_shared: bool = False) -> str | None:
    """Return the watermark above which a snapshot must be taken now; None if no snapshot is due.

    `is_shared` says that named sources share the log.
    """
    known = writer.snapshots()
    log_store.requests.answer_snapshot(max((snapshot.watermark for snapshot in known), default=EMPTY))
    held = _held_by_consumers(log_store)
    if writer.state().generation == 0:
        return held
    if not is_shared and any(row.schema for row in writer.sources().values()):
        event(_log, logging.WARNING, "a new snapshot is taken", reason="the log was written by several sources")
        return held
    if is_beyond(held, writer.state().head):
        reason = f"consumers hold {held}, which this log has lost: it was damaged, or restored from an older copy"
        event(_log, logging.WARNING, "a new snapshot is taken", reason=reason)
        return held
    if not all(log_store.files.holds(newest.directory) for newest in known[-1:]):
        warn(_log, NEW_SNAPSHOT, "", "a new snapshot is taken", reason="files of the former are missing or cut")
        return EMPTY
    return _requested(log_store, writer.state().head)


def _held_by_consumers(log_store: LogStore) -> str:
    """The highest watermark that a consumer is known to have been sent."""
    with closing(log_store.open_coordination()) as coordination:
        return highest_held(coordination.consumers())


def _requested(log_store: LogStore, head: str) -> str | None:
    """Above which watermark an endpoint has asked for a snapshot.

    Requests are made above watermarks of ours. One that is beyond them was written by a release that took a consumer's
    word for it; it is answered as if it had asked for any new snapshot.
    """
    request = log_store.requests.pending_snapshot()
    if request is None:
        return None
    if is_beyond(request.above, head):
        log_store.requests.withdraw_snapshot()
        log_store.requests.ask_snapshot(head, request.reason)
        return head
    return request.above
