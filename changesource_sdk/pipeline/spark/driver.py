"""The Spark driver process: one session around one runner.

What the JVM says on its own (start-up notices, log lines) goes to `spark.log` in the state directory, so that standard
error stays readable. If the process is stopped while Spark is still starting, it ends without waiting for it.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from changesource_sdk.changelog.store import LogStore
from changesource_sdk.observe.log_socket import LogReceiver
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.sources.runner import SourcesRunner
from changesource_sdk.pipeline.spark.lanes.compaction import SparkLane
from changesource_sdk.pipeline.spark.runner import SparkLanes, SparkRunner
from changesource_sdk.pipeline.spark.session import LOG_FILE, SparkSettings, standard_error_to, start_session
from changesource_sdk.policies.compaction import CompactionPolicy
from service_kit.logs import event, logger

if TYPE_CHECKING:
    from changesource_sdk.pipeline.settings import PipelineSettings

_log = logger("spark")


def drive(pipeline: PipelineSettings, log_store: LogStore, stop: threading.Event) -> None:
    """Start Spark and run the pipeline on it until `stop` is set."""
    state = log_store.layout.root
    stage = Stage(log_store.reports, "pipeline")
    stage.flush()
    ended = threading.Event()
    threading.Thread(target=_leave_if_stopped_early, args=(stop, ended), daemon=True).start()
    # On a busy machine a JVM takes longer to start than a stage may be silent.
    with stage.beating(), standard_error_to(state / LOG_FILE):
        settings = SparkSettings(pipeline.master, pipeline.conf, resident_tasks=max(1, len(pipeline.sources)))
        session = start_session(settings)
    ended.set()
    try:
        ui = session.sparkContext.uiWebUrl or "(off)"
        event(_log, logging.INFO, "Spark runs the pipeline", version=session.version, ui=ui)
        compaction = CompactionPolicy.parse(pipeline.compact_after)
        if pipeline.source is not None:
            SparkRunner(session, pipeline.source, log_store, stop=stop, compaction=compaction).run()
            return
        host = str(session.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))
        with LogReceiver(host) as logs:
            lanes = SparkLanes(session, log_store, logs.address)
            compacting = SparkLane(session.sparkContext, stop)
            SourcesRunner(pipeline.sources, log_store, lanes, compacting, stop=stop, compaction=compaction).run()
    finally:
        session.stop()


def _leave_if_stopped_early(stop: threading.Event, started: threading.Event) -> None:
    """Starting a session cannot be interrupted; nothing is open yet, so leaving at once loses nothing."""
    while not started.wait(0.2):
        if stop.is_set():
            os._exit(0)
