"""One Spark job in a thread of its own, so that the driver can watch it and end it.

The thread carries its own job group; leaving the context cancels what still runs under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from changesource_sdk.errors import ChangesourceError

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")

JOIN_S = 10.0


class SparkFailure(ChangesourceError):
    """Spark gave a job up: its tasks or executors kept failing, or the cluster is gone."""


class SparkJob(Generic[T]):
    """Runs `work` (which must set the job group) from entering the context to the end or to leaving it."""

    def __init__(self, context: SparkContext, group: str, work: Callable[[], T]) -> None:
        from pyspark import InheritableThread

        self._context = context
        self._group = group
        self._work = work
        self._done = threading.Event()
        # What the work returned, in a list of one, or raised; written by the thread before it sets `_done`.
        self._result: list[T] = []
        # See `_result`.
        self._error: BaseException | None = None
        self._thread = InheritableThread(target=self._run, name=group, daemon=True)

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the end of the job; whether it ended."""
        return self._done.wait(timeout)

    def result(self) -> T:
        """What the work returned; call it once the job ended. Raises `SparkFailure` with the gist of Spark's error."""
        if self._error is not None:
            raise SparkFailure(
                "spark-job-failed",
                _gist(str(self._error)),
                where=self._group,
                fix="see spark.log in the state directory; the job is submitted again with a growing delay",
            ) from self._error
        return self._result[0]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._done.is_set():
            self._context.cancelJobGroup(self._group)
        self._thread.join(JOIN_S)


class FinishedTasks:
    """Counts the finished tasks of a group's jobs, from the jobs that come after this was made."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._tracker = context.statusTracker()
        self._group = group
        self._before = set(self._tracker.getJobIdsForGroup(group))
        # Finished tasks that `newly_finished` has returned so far.
        self._counted = 0

    def newly_finished(self) -> int:
        """How many tasks finished since the last call."""
        jobs = [
            self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(self._group) if self._is_new(job)
        ]
        stages = [self._tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        finished = max(self._counted, sum(stage.numCompletedTasks for stage in stages if stage))
        more, self._counted = finished - self._counted, finished
        return more

    def _is_new(self, job: int) -> bool:
        return job not in self._before


def _gist(message: str) -> str:
    """The line of a Spark error that names the cause; the whole message fills screens."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "Exception" in line or "Lost" in line]
    return (telling or lines or ["Spark failed without a message"])[-1 if telling else 0][:500]
