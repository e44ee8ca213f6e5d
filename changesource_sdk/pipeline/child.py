"""The pipeline as a process of its own: `python -m changesource_sdk.pipeline.child STATE`.

What to run is in `STATE/pipeline.json`, readable by its owner only: settings may hold passwords, which do not belong on
a command line. The process ends by itself when its standard input closes, so it never outlives whoever started it, and
between two transactions on SIGTERM or SIGINT.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import orjson

from changesource_sdk.changelog.atomic_json import read_json
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.open import open_store
from changesource_sdk.errors import ChangesourceError, ConfigurationError
from changesource_sdk.observe.logs import configure_from_environment as configure_logs
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.adapter_factory import adapter_factory
from changesource_sdk.pipeline.compaction_policy import CompactionPolicy
from changesource_sdk.pipeline.inline import InlineRunner
from changesource_sdk.pipeline.mapped import mappings_of
from changesource_sdk.pipeline.mapping_memory import renew_if_changed

_FILE = "pipeline.json"
Runner = Literal["inline", "spark"]


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """What a pipeline process is to do. `adapter` is `module:Class`; `master` and `conf` are for the Spark runner;
    `log`, `log_schema` and `spool` say where the log is (`changelog.open`).
    """

    adapter: str
    settings: Mapping[str, object] = field(default_factory=dict)
    runner: Runner = "inline"
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None
    log_schema: str = "changesource"
    spool: str | None = None
    compact_after: str = "never"


def command_line(pipeline: PipelineSettings, state_directory: Path) -> list[str]:
    """Leave the settings in the state directory; the command that starts the pipeline with them."""
    layout = StateDirectory(state_directory).create()
    path = layout.root / _FILE
    descriptor = os.open(path.with_suffix(".staged"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps(asdict(pipeline)))
    path.with_suffix(".staged").replace(path)
    return [sys.executable, "-m", "changesource_sdk.pipeline.child", str(state_directory)]


def _read_settings(state: Path) -> PipelineSettings:
    found = read_json(state / _FILE)
    if found is None:
        raise ConfigurationError(
            "pipeline-settings",
            f"there is no {_FILE} to say what to run",
            where=str(state),
            fix="use changesource serve",
        )
    return PipelineSettings(**found)  # type: ignore[arg-type]


def _watch_parent(stop: threading.Event) -> None:
    """End when standard input does: the parent is gone."""
    while os.read(0, 4096):
        pass
    stop.set()


def _run(pipeline: PipelineSettings, state: Path, stop: threading.Event) -> None:
    make = adapter_factory(pipeline.adapter, pipeline.settings)
    store = open_store(state, pipeline.log, pipeline.log_schema, pipeline.spool)
    try:
        renew_if_changed(store, mappings_of(pipeline.adapter, pipeline.settings))
        if pipeline.runner == "inline":
            compaction = CompactionPolicy.parse(pipeline.compact_after)
            InlineRunner(make, store, stop=stop, compaction=compaction).run()
            return
        from changesource_sdk.pipeline.spark.driver import drive

        drive(pipeline, store, stop)
    finally:
        store.close()


def main(arguments: list[str]) -> int:
    """Run until told to stop; the exit code."""
    configure_logs()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_watch_parent, args=(stop,), daemon=True).start()
    (state,) = map(Path, arguments)
    try:
        _run(_read_settings(state), state, stop)
    except ChangesourceError as error:
        Stage(state, "pipeline").failed(error)
        print(f"error[{error.code}]: {error.message} ({error.where})\nfix: {error.fix}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
