"""The pipeline as a process of its own: `python -m changesource_sdk.pipeline.child STATE`.

What to run is in `STATE/pipeline.json`, readable by its owner only: settings may hold passwords, which do not belong on
a command line. The process ends by itself when its standard input closes, so it never outlives whoever started it, and
between two transactions on SIGTERM or SIGINT.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.atomic_json import read_json
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.errors import ChangesourceError, ConfigurationError
from changesource_sdk.observe import logs
from changesource_sdk.pipeline.inline import InlineRunner

_FILE = "pipeline.json"


def command_line(adapter: str, settings: Mapping[str, object], state_directory: Path) -> list[str]:
    """Leave the configuration in the state directory; the command that starts the pipeline with it."""
    layout = StateDirectory(state_directory).create()
    path = layout.root / _FILE
    descriptor = os.open(path.with_suffix(".staged"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps({"adapter": adapter, "settings": dict(settings)}))
    path.with_suffix(".staged").replace(path)
    return [sys.executable, "-m", "changesource_sdk.pipeline.child", str(state_directory)]


def adapter_factory(path: str, settings: Mapping[str, object]) -> Callable[[], Adapter]:
    """What makes the adapter `module:Class` with these settings, as often as needed."""
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            "adapter-import", f"cannot load the adapter: {error}", where=path, fix="give it as module:Class"
        ) from error

    def make() -> Adapter:
        adapter: Adapter = found(**settings)
        return adapter

    return make


def _watch_parent(stop: threading.Event) -> None:
    """End when standard input does: the parent is gone."""
    while os.read(0, 4096):
        pass
    stop.set()


def main(arguments: list[str]) -> int:
    """Run until told to stop; the exit code."""
    form, level = (os.environ.get(f"CHANGESOURCE_LOG_{name}") for name in ("FORMAT", "LEVEL"))
    logs.configure(form=form or "text", level=level or "info")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_watch_parent, args=(stop,), daemon=True).start()
    try:
        (state,) = map(Path, arguments)
        found = read_json(state / _FILE) or {}
        settings = found.get("settings")
        make = adapter_factory(str(found.get("adapter", "")), settings if isinstance(settings, dict) else {})
        InlineRunner(make, state, stop=stop).run()
    except ChangesourceError as error:
        print(f"error[{error.code}]: {error.message} ({error.where})\nfix: {error.fix}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
