"""The pipeline as a process of its own: `python -m changesource_sdk.pipeline.child STATE`.

What to run is in the state directory (`settings`). The process ends by itself when its standard input closes, so it
never outlives its parent, and between two transactions on SIGTERM or SIGINT.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from changesource_sdk.changelog.coordination.reports import Reports
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.open import open_store
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.observe.relayed import relay_to_standard_error
from changesource_sdk.observe.stages import Stage
from changesource_sdk.observe.warnings import WarningBook
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.inline import InlineRunner
from changesource_sdk.pipeline.mapping.fingerprint import renew_if_changed
from changesource_sdk.pipeline.settings import PipelineSettings, read_settings
from changesource_sdk.pipeline.sources.lane import InlineLanes
from changesource_sdk.pipeline.sources.runner import SourcesRunner
from changesource_sdk.policies.compaction import CompactionPolicy


def _watch_parent(stop: threading.Event) -> None:
    """Set `stop` when standard input closes, which means that the parent is gone. Runs in a thread of its own."""
    while os.read(0, 4096):
        pass
    stop.set()


def _run(pipeline: PipelineSettings, state: Path, stop: threading.Event) -> None:
    # Raises for an adapter that cannot be imported, before anything is opened.
    factories = [source.factory() for source in pipeline.sources or (pipeline.source,) if source is not None]
    log_store = open_store(state, pipeline.log, pipeline.log_schema, pipeline.spool)
    log_store.layout.create()
    book = WarningBook(log_store.reports)
    relay_to_standard_error(book)
    try:
        if pipeline.source is not None:
            renew_if_changed(log_store, pipeline.source.loaded_mappings())
        if pipeline.runner == "inline":
            compaction = CompactionPolicy.parse(pipeline.compact_after)
            if pipeline.source is not None:
                policy = pipeline.source.on_bad_value
                make = factories[0]
                InlineRunner(make, log_store, stop=stop, compaction=compaction, on_bad_value=policy).run()
            else:
                lanes, compacting = InlineLanes(), LocalLane()
                SourcesRunner(pipeline.sources, log_store, lanes, compacting, stop=stop, compaction=compaction).run()
            return
        from changesource_sdk.pipeline.spark.driver import drive

        drive(pipeline, log_store, stop)
    finally:
        book.close()
        log_store.close()


def _reports(state: Path) -> Reports:
    """Where to report what ended the pipeline: with the log, or on this host if the log cannot be opened."""
    try:
        pipeline = read_settings(state)
        return open_store(state, pipeline.log, pipeline.log_schema, pipeline.spool).reports
    except ChangesourceError:
        return Reports(StateDirectory(state).stages)


def main(arguments: list[str]) -> int:
    """Run until stopped by a signal, the parent or an error; returns the exit code."""
    relay_to_standard_error()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_watch_parent, args=(stop,), daemon=True).start()
    (state,) = map(Path, arguments)
    try:
        _run(read_settings(state), state, stop)
    except ChangesourceError as error:
        Stage(_reports(state), "pipeline").failed(error)
        print(f"error[{error.code}]: {error.message} ({error.where})\nfix: {error.fix}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
