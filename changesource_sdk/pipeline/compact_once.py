"""One compaction on demand: `changesource compact`.

The work is the same as that of a pipeline that compacts by itself. What differs is which process registers the result:
a pipeline that runs takes the offer as it takes its own; if none runs, this process is the log's writer for a moment,
and prunes what the new snapshot contains.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.changelog.retention import prune_point
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.errors import StateError
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.compaction.job import Lane
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.compaction.scheduler import STAGE, compact_and_report
from changesource_sdk.pipeline.spark.session import SparkSettings, standard_error_to, start_session
from changesource_sdk.pipeline.upkeep import STEP_TRANSACTIONS

TAKEN_WITHIN_S = 30.0
"""How long to wait for a running pipeline to register the snapshot, in seconds."""
_HELD = ("state-in-use", "log-in-use")
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result. `registered` says that the log names the snapshot already; if not, its pipeline will.

    `forgotten` is the number of transactions that were pruned.
    """

    watermark: str
    registered: bool
    forgotten: int


@contextmanager
def lane(runner: str, settings: SparkSettings, spark_log: Path) -> Iterator[Lane]:
    """Where the work is done; a Spark session lives as long as the context. The JVM's output goes to `spark_log`."""
    if runner == "inline":
        yield LocalLane()
        return
    from changesource_sdk.pipeline.spark.lanes.compaction import SparkLane

    with standard_error_to(spark_log):
        session = start_session(settings)
    try:
        yield SparkLane(session.sparkContext, threading.Event())
    finally:
        session.stop()


def compact_once(
    log_store: LogStore, lane: Lane, expiry_ms: float, clock: Callable[[], float] = time.time
) -> Compacted | None:
    """Compact the log now; None if nothing came after its newest snapshot.

    `expiry_ms` is how long an absent consumer still holds the log back.
    """
    with log_store.compacting(), ExitStack() as stack:
        if not log_store.handoff.is_pending():
            stage = Stage(log_store.reports, STAGE, clock)
            if compact_and_report(log_store, lane, stage, clock) is None:
                return None
        is_ours = _claim(stack, log_store)
        forgotten = _register(log_store, expiry_ms, clock) if is_ours else 0
        registered = is_ours or _is_taken(log_store)
    reader = log_store.open_log()
    try:
        return Compacted(reader.snapshots()[-1].watermark, registered, forgotten)
    finally:
        reader.close()


def _claim(stack: ExitStack, log_store: LogStore) -> bool:
    """Claim the log as its pipeline until the stack closes; False if a pipeline has it."""
    try:
        stack.enter_context(log_store.claim())
    except StateError as error:
        if error.code not in _HELD:
            raise
        return False
    return True


def _register(log_store: LogStore, expiry_ms: float, clock: Callable[[], float]) -> int:
    """Register the offered snapshot as the log's writer and prune; returns the number of transactions pruned."""
    writer = log_store.open_writer(lambda: int(clock() * 1_000_000))
    try:
        log_store.handoff.take(writer)
        return _prune(log_store, writer, expiry_ms, clock)
    finally:
        writer.close()


def _prune(log_store: LogStore, writer: LogWriter, expiry_ms: float, clock: Callable[[], float]) -> int:
    with closing(log_store.open_coordination()) as coordination:
        newest, seeds = writer.snapshots()[-1].watermark, log_store.seeds.all()
        below = prune_point(newest, coordination.consumers(), clock() * 1000, expiry_ms, seeds)
    total = 0
    while forgotten := writer.prune(below, STEP_TRANSACTIONS):
        total += forgotten
    return total


def _is_taken(log_store: LogStore) -> bool:
    """Wait until the running pipeline takes the offer; False if it does not within `TAKEN_WITHIN_S`."""
    deadline = time.monotonic() + TAKEN_WITHIN_S
    while log_store.handoff.is_pending():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
