"""Where the work of a seed is done: in this process, or in Spark tasks. Both write the same pieces."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.pipeline.compaction.job import Lane
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.spark.job import FinishedTasks, SparkJob
from changesource_sdk.pipeline.spark.session import SparkSettings, standard_error_to, start_session
from changesource_sdk.seed.pieces import PieceTask, Rows

if TYPE_CHECKING:
    from pyspark import SparkContext

JOB_GROUP = "changesource seed"
_POLL_S = 0.25


class SeedLane(Protocol):
    """Writes pieces. `compaction` folds the log into the rows, where the schema changed."""

    @property
    def compaction(self) -> Lane:
        """The lane for `pipeline.compaction`."""

    def write(self, tasks: Sequence[PieceTask], store: PartStore, done: Rows) -> None:
        """Run all tasks; returns when each has put its piece into the store."""


class LocalSeedLane:
    """A `SeedLane` of one process and one thread."""

    def __init__(self) -> None:
        self.compaction: Lane = LocalLane()

    def write(self, tasks: Sequence[PieceTask], store: PartStore, done: Rows) -> None:
        """Run the tasks one after the other."""
        for task in tasks:
            task.run(store, done)


class SparkSeedLane:
    """A `SeedLane` of Spark tasks, one per piece."""

    def __init__(self, context: SparkContext) -> None:
        from changesource_sdk.pipeline.spark.lanes.compaction import SparkLane

        self._context = context
        self.compaction: Lane = SparkLane(context, threading.Event())

    def write(self, tasks: Sequence[PieceTask], store: PartStore, done: Rows) -> None:
        """Run the tasks in parallel."""
        if not tasks:
            return

        def run() -> None:
            self._context.setJobGroup(JOB_GROUP, f"seed: {len(tasks)} pieces", interruptOnCancel=True)
            self._context.parallelize(tasks, len(tasks)).foreach(lambda task: _run(task, store))

        finished = FinishedTasks(self._context, JOB_GROUP)
        rows = sum(task.rows for task in tasks)
        count = 0
        with SparkJob(self._context, JOB_GROUP, run) as job:
            while not job.wait(_POLL_S):
                before, count = count, count + finished.newly_finished()
                # Tasks have about the same size, so their number says how many rows are done.
                done(rows * count // len(tasks) - rows * before // len(tasks))
            job.result()
        done(rows - rows * count // len(tasks))


def _run(task: PieceTask, store: PartStore) -> None:
    task.run(store)


@contextmanager
def seed_lane(runner: str, settings: SparkSettings, spark_log: Path) -> Iterator[SeedLane]:
    """Yield the lane of a runner; a Spark session lives as long as the block. The JVM's output goes to `spark_log`."""
    if runner == "inline":
        yield LocalSeedLane()
        return
    with standard_error_to(spark_log):
        session = start_session(settings)
    try:
        yield SparkSeedLane(session.sparkContext)
    finally:
        session.stop()
