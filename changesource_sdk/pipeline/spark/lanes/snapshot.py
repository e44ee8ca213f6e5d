"""The snapshot lane: partitions of one consistent snapshot, encoded to spool parts by Spark tasks.

A task gets one partition, writes one part in a scratch folder of its own attempt and puts it into the part store when
it is whole (`spool.parts`), so a task that is retried, or runs twice, leaves one part. Only the description of a part
comes back to the driver. Where driver and tasks share a folder, rows that pass are counted in small files next to the
parts.

What may be a passing failure of the adapter is raised again, so that Spark retries the task; what a retry cannot fix
(a value that fits no column) comes back as a value and ends the snapshot with its own message.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.snapshots import PartInfo, part_name
from changesource_sdk.errors import AdapterError, ChangesourceError
from changesource_sdk.observe.log_socket import LogReceiverAddress, send_logs
from changesource_sdk.pipeline.mapped import MappedPartition
from changesource_sdk.pipeline.snapshot.take import PartTask, SnapshotProgress, write_partition
from changesource_sdk.pipeline.spark.job import SparkFailure, SparkJob
from changesource_sdk.pipeline.spark.session import TASK_TRIES
from changesource_sdk.pipeline.spark.sql.mapped_snapshot import by_table, sql_parts, uses_sql
from changesource_sdk.pipeline.spark.sql.mapping import explained

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

JOB_GROUP = "changesource snapshot"
_POLL_S = 0.25
_COUNT_EVERY_S = 0.25


class SparkParts:
    """A `PartsWriter` that spreads the parts over Spark tasks."""

    def __init__(self, session: SparkSession, logs: LogReceiverAddress | None = None, source: str = "") -> None:
        """`source` is the name of the one that is read, where several share the log: it gets a job group of its own."""
        self._session = session
        self._group = f"{JOB_GROUP} {source}".rstrip()
        self._logs = logs  # where tasks send what they log
        self._context = session.sparkContext

    def __call__(
        self, part_store: PartStore, tasks: Sequence[PartTask], progress: SnapshotProgress
    ) -> Sequence[PartInfo]:
        """All parts, in the order of the tasks; raises the first error that a task gave back."""
        if not tasks:
            return []
        part_store.tidy()
        context = self._context
        parts = self._parts(part_store, tasks)

        def run() -> list[PartInfo | ChangesourceError]:
            context.setJobGroup(self._group, f"snapshot of {len(tasks)} partitions", interruptOnCancel=True)
            return parts.collect()

        names = frozenset(part_name(task.number) for task in tasks)
        watch = _ProgressWatch(part_store, names, progress)
        with SparkJob(context, self._group, run) as job:
            while not job.wait(_POLL_S):
                watch.poll_if_due()
            results = _results(job, tasks)
        watch.poll()
        part_store.tidy()
        for result in results:
            if isinstance(result, ChangesourceError):
                raise result
        parts_done = [result for result in results if isinstance(result, PartInfo)]
        return sorted(parts_done, key=lambda part: part.file)

    def _parts(self, part_store: PartStore, tasks: Sequence[PartTask]) -> RDD[PartInfo | ChangesourceError]:
        """One Spark partition per task; those of tables with SQL are evaluated by Spark on the way."""
        pickled = [_pickled(task) for task in tasks if not uses_sql(task)]
        write = partial(run_task, part_store, self._logs)
        groups = by_table([task for task in tasks if uses_sql(task)])
        parts = [sql_parts(self._session, mapped, list(map(_pickled, group)), write) for mapped, group in groups]
        if pickled:
            plain = self._context.parallelize(pickled, len(pickled))
            parts.append(plain.map(lambda task: write(pickle.loads(task))))
        return parts[0] if len(parts) == 1 else self._context.union(parts)


def _results(
    job: SparkJob[list[PartInfo | ChangesourceError]], tasks: Sequence[PartTask]
) -> list[PartInfo | ChangesourceError]:
    try:
        return job.result()
    except SparkFailure as failure:
        mapped = [task.partition.mapped for task in tasks if isinstance(task.partition, MappedPartition)]
        raise explained(failure.__cause__ or failure, mapped) or failure from failure


def _pickled(task: PartTask) -> bytes:
    try:
        return pickle.dumps(task)
    except Exception as error:
        kind = type(task.partition).__name__
        raise AdapterError(
            "partition-not-picklable",
            f"a partition of type {kind} cannot be sent to a Spark task: {error}",
            where=f"snapshot(), partition {task.number} of {task.table.full_name}",
            fix="make it a class at the top of a module, holding plain values such as a path and a key range; "
            "open files and connections in rows()",
        ) from error


def run_task(part_store: PartStore, logs: LogReceiverAddress | None, task: PartTask) -> PartInfo | ChangesourceError:
    """What one Spark task does: write one part, whole or not at all."""
    send_logs(logs)
    try:
        with part_store.scratch() as own:
            count = _RowCount(part_store.count_file(task.number))
            part = write_partition(own, task, count.add)
            count.write()
            part_store.put(own / part.file, part)
    except AdapterError as error:
        if error.code == "adapter-failed" and not _is_last_attempt():
            raise
        return error
    except ChangesourceError as error:
        return error
    return part


def _is_last_attempt() -> bool:
    """Whether Spark will give up after this attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is None or context.attemptNumber() >= TASK_TRIES - 1


class _RowCount:
    """The rows of one part so far, in a file that is replaced now and then; nowhere if there is no such file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        # Rows added so far.
        self._rows = 0
        # When the file was last written, in monotonic seconds.
        self._written_at = 0.0

    def add(self, rows: int) -> None:
        self._rows += rows
        if time.monotonic() - self._written_at >= _COUNT_EVERY_S:
            self.write()

    def write(self) -> None:
        self._written_at = time.monotonic()
        if self._path is not None:
            self._path.write_text(str(self._rows))


@dataclass(slots=True)
class _ProgressWatch:
    """Reports rows and finished parts since the last poll.

    A part counts when its note is there. Files say too much: an earlier run, stopped between a part and its note, has
    left a part that is written again.
    """

    part_store: PartStore
    names: frozenset[str]
    progress: SnapshotProgress
    # All written by `poll`, in the driver.
    parts: int = 0  # reported so far
    rows: int = 0  # reported so far
    polled_at: float = 0.0  # when the part store was last polled, in monotonic seconds

    def poll_if_due(self) -> None:
        """Poll as often as the part store allows; in between only show that the snapshot is in progress."""
        if time.monotonic() - self.polled_at >= self.part_store.poll_every_s:
            self.poll()
        else:
            self.progress.rows_done(0)

    def poll(self) -> None:
        self.polled_at = time.monotonic()
        rows = self.part_store.rows_counted()
        parts = len(self.names & self.part_store.finished().keys())
        self.progress.part_done(parts - self.parts)
        self.progress.rows_done(max(0, rows - self.rows))
        self.rows, self.parts = max(rows, self.rows), parts
