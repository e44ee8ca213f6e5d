"""What a pipeline process is to do: a file in its state directory.

The settings are in `STATE/pipeline.json`, readable by its owner only: they may hold passwords, which do not belong on a
command line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.source import SourceSpec
from protocol.redaction import hide_setting

_FILE = "pipeline.json"
Runner = Literal["inline", "spark"]


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """What a pipeline process is to do: follow one source, or the named `sources` together. `master` and `conf` are for
    the Spark runner; `log`, `log_schema` and `spool` say where the log is (`changelog.open`).
    """

    source: SourceSpec | None
    runner: Runner = "inline"
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None
    log_schema: str = "changesource"
    spool: str | None = None
    compact_after: str = "never"
    sources: Sequence[SourceSpec] = ()


def command_line(pipeline: PipelineSettings, state_directory: Path) -> list[str]:
    """Leave the settings in the state directory; the command that starts the pipeline with them."""
    layout = StateDirectory(state_directory).create()
    path = layout.root / _FILE
    with disk_errors(state_directory):
        write_json(path, asdict(pipeline))
    return [sys.executable, "-m", "changesource_sdk.pipeline.child", str(state_directory)]


def read_settings(state: Path) -> PipelineSettings:
    """The settings that `command_line` left; their secrets are masked in what this process prints."""
    content = read_json(state / _FILE)
    if content is None:
        raise ConfigurationError(
            "pipeline-settings",
            f"there is no {_FILE} to say what to run",
            where=str(state),
            fix="use changesource serve",
        )
    hide_setting("pipeline", content)
    return _settings_of(content)


def _settings_of(content: dict[str, Any]) -> PipelineSettings:
    sources = tuple(SourceSpec(**each) for each in content.pop("sources", ()))
    source = None
    if sources:
        content.pop("source", None)
    elif "source" in content:
        source = SourceSpec(**content.pop("source"))
    else:  # of an earlier release
        source = SourceSpec.from_wrapped(content.pop("adapter"), content.pop("settings", {}))
    return PipelineSettings(source, sources=sources, **content)
