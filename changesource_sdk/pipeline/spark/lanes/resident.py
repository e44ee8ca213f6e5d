"""The resident lane: one Spark task that never ends follows one ordered source.

The task runs the same tail as the inline runner and recovers from the upstream's failures by itself. Spark starts it
again when its process or executor dies, the driver submits it again when Spark gives up, and each start is a new writer
of the log that fences the former. The task ends when the driver closes its lifeline, or when a snapshot is due, which
is the driver's work.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from changesource_sdk.changelog.source_writer import SourceWriter
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.observe.log_socket import LogReceiverAddress, send_logs
from changesource_sdk.observe.stages import Stage, stage_of_source
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.append import Appender, append_tail
from changesource_sdk.pipeline.recovery import Recovery, snapshot_due
from changesource_sdk.pipeline.run import Run
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.job import SparkJob
from changesource_sdk.pipeline.spark.lifeline import Address, DriverLifeline, hold
from service_kit.backoff import Backoff

if TYPE_CHECKING:
    from pyspark import SparkContext

JOB_GROUP = "changesource tail"
_POLL_S = 0.25
_END_TASK_S = 10.0


@dataclass(frozen=True, slots=True)
class ResidentTask:
    """The arguments of the task; picklable."""

    source: SourceSpec
    log_store: LogStore
    lifeline: Address
    logs: LogReceiverAddress | None
    epoch: int = 0  # that of the log's owner, where several sources share it


def follow(run: Run, context: SparkContext, source: SourceSpec, logs: LogReceiverAddress | None = None) -> None:
    """Keep the source followed by a task until the run stops or a snapshot is due; raises what ended it otherwise.

    What the task logs goes to `logs`.
    """
    host = str(context.getConf().get("spark.driver.host", "127.0.0.1"))
    with DriverLifeline(host) as lifeline:
        task = ResidentTask(source, run.log_store, lifeline.address, logs, run.epoch)
        # A group of its own, since the jobs of a group are cancelled together.
        group = f"{JOB_GROUP} {source.name}".rstrip()

        def follow_source() -> list[ChangesourceError | None]:
            context.setJobGroup(group, f"tail of {source.adapter}", interruptOnCancel=True)
            return context.parallelize([task], 1).map(run_task).collect()

        with SparkJob(context, group, follow_source) as job:
            while not job.wait(_POLL_S):
                if run.stop.is_set():
                    lifeline.release()
                    job.wait(_END_TASK_S)
                    return
            for error in job.result():
                if error is not None:
                    raise error


def run_task(task: ResidentTask) -> ChangesourceError | None:
    """What the Spark task does until the driver ends it, a snapshot is due, or an error that a retry cannot fix."""
    send_logs(task.logs)
    stop = threading.Event()
    hold(task.lifeline, stop)
    log_store, source = task.log_store, task.source
    run = Run(
        log_store,
        Stage(log_store.reports, stage_of_source(source.name)),
        stop,
        on_bad_value=source.on_bad_value,
        source=source.name,
        epoch=task.epoch,
    )
    run.stage.take_over()
    recovery = Recovery(run, Backoff())

    def step() -> bool:
        with closing(run.open_appender()) as writer:
            if _is_snapshot_due(log_store, writer):
                return False
            with opened(task.source.factory()) as adapter:
                append_tail(run, adapter, writer, recovery.progressed)
        return True

    try:
        recovery.run(step)
    except ChangesourceError as error:
        return error
    finally:
        log_store.close()
    return None


def _is_snapshot_due(log_store: LogStore, writer: Appender) -> bool:
    """Whether the driver has to read the upstream: for the whole log, or for this source alone."""
    if isinstance(writer, SourceWriter):
        return writer.row.position is None
    return snapshot_due(log_store, writer) is not None
