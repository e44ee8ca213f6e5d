"""The compaction lane on Spark: ranges of the log and parts of the old snapshot are read, sorted and folded by tasks.

One task per range or part gives items; Spark's shuffle brings the items of one bucket to one task, sorted, spilling to
disk beyond what a worker may hold; that task writes one part per table and puts it into the part store when it is whole
(`spool.parts`). The driver sees findings, tied keys and descriptions of parts, never rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from changesource_sdk.changelog.spool.snapshots import PartInfo
from changesource_sdk.pipeline.compaction.fold import Findings, Item, Sorting, Tie, scan
from changesource_sdk.pipeline.compaction.job import Done, Folding, ReadableRange, SpoolPart
from changesource_sdk.pipeline.compaction.local import bucket_of
from changesource_sdk.pipeline.recovery import Stopped
from changesource_sdk.pipeline.spark.job import FinishedTasks, SparkJob

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")

JOB_GROUP = "changesource compaction"
_POLL_S = 0.25


class SparkLane:
    """A `Lane` of Spark tasks, which run in parallel to the tail's resident task. Setting `stop` cancels what runs."""

    def __init__(self, context: SparkContext, stop: threading.Event) -> None:
        self._context = context
        self._stop = stop

    def scan(self, log_ranges: Sequence[ReadableRange], done: Done) -> list[Findings]:
        """`fold.scan` of every range."""
        findings = self._context.parallelize(log_ranges, len(log_ranges)).map(lambda each: scan(each.changes()))
        return self._run("scan", findings.collect, done)

    def ties(self, log_ranges: Sequence[ReadableRange], sorting: Sorting, done: Done) -> list[Tie]:
        """The tied keys of all ranges."""
        ties = self._context.parallelize(log_ranges, len(log_ranges)).flatMap(lambda each: sorting.ties(each.changes()))
        return self._run("ties", ties.collect, done)

    def fold(self, folding: Folding, done: Done) -> list[PartInfo]:
        """Sort all items into buckets and write the parts of each."""
        sources: list[SpoolPart | ReadableRange] = [*folding.parts, *folding.log_ranges]
        buckets = folding.buckets
        sorting = folding.sorting
        items = self._context.parallelize(sources, len(sources)).flatMap(lambda source: read_items(sorting, source))
        bucketed = items.repartitionAndSortWithinPartitions(buckets, lambda key: bucket_of(key, buckets))
        written = bucketed.mapPartitionsWithIndex(lambda bucket, sorted_: [write_bucket(folding, bucket, sorted_)])
        parts = self._run(f"fold into {buckets} buckets", written.collect, done)
        folding.part_store.tidy()
        folding.part_store.remove_notes()
        return list(chain.from_iterable(parts))

    def _run(self, description: str, work: Callable[[], list[T]], done: Done) -> list[T]:
        def run() -> list[T]:
            self._context.setJobGroup(JOB_GROUP, f"compaction: {description}", interruptOnCancel=True)
            return work()

        finished = FinishedTasks(self._context, JOB_GROUP)
        with SparkJob(self._context, JOB_GROUP, run) as job:
            while not job.wait(_POLL_S):
                done(finished.newly_finished())
                if self._stop.is_set():
                    raise Stopped
            result = job.result()
        done(finished.newly_finished())
        return result


def read_items(sorting: Sorting, source: SpoolPart | ReadableRange) -> Iterator[Item]:
    """What one reading task gives."""
    if isinstance(source, SpoolPart):
        return sorting.rows(source.payloads())
    return sorting.changes(source.changes())


def write_bucket(folding: Folding, bucket: int, items: Iterable[Item]) -> list[PartInfo]:
    """What one writing task does: the parts of a bucket, each whole or not at all."""
    with folding.part_store.scratch() as own:
        parts = folding.write_bucket(bucket, items, own)
        for part in parts:
            folding.part_store.put(own / part.file, part)
    return parts
