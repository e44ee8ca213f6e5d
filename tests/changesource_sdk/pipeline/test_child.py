"""The pipeline as a process of its own."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from changesource_sdk.errors import ConfigurationError, ReadOnlyState
from changesource_sdk.pipeline.adapter_factory import adapter_factory
from changesource_sdk.pipeline.settings import PipelineSettings, command_line
from changesource_sdk.pipeline.source import SourceSpec
from tests.changesource_sdk.pipeline.runner_fixtures import PATIENCE_S, Watched

MEMORY = "adapters.memory:MemoryAdapter"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"issue": [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}]}))
    return file


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def test_settings_stay_off_the_command_line_and_out_of_others_reach(tmp_path: Path) -> None:
    command = command_line(PipelineSettings(SourceSpec(MEMORY, {"password": "secret"})), tmp_path / "state")
    assert "secret" not in " ".join(command)
    assert stat.S_IMODE((tmp_path / "state" / "pipeline.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_fills_the_log_and_stops_when_told(tmp_path: Path, data: Path, number: signal.Signals) -> None:
    child = start(command_line(PipelineSettings(SourceSpec(MEMORY, {"file": str(data)})), tmp_path / "state"))
    seen = Watched(tmp_path / "state")
    seen.until_generation(1)
    assert sum(b'"insert"' in payload for payload in seen.snapshot_payloads()) == 2
    child.send_signal(number)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, errors) == (0, b"")
    assert seen.stage()["state"] == "stopped"
    seen.close()


def test_it_ends_when_its_parent_does(tmp_path: Path, data: Path) -> None:
    child = start(command_line(PipelineSettings(SourceSpec(MEMORY, {"file": str(data)})), tmp_path / "state"))
    seen = Watched(tmp_path / "state")
    seen.until_generation(1)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(PATIENCE_S) == 0
    seen.close()


def test_a_kill_in_the_middle_is_followed_by_a_clean_start(tmp_path: Path, data: Path) -> None:
    command = command_line(PipelineSettings(SourceSpec(MEMORY, {"file": str(data)})), tmp_path / "state")
    seen = Watched(tmp_path / "state")
    child = start(command)
    seen.until(lambda: (tmp_path / "state" / "log.sqlite").exists())
    child.kill()
    child.communicate()
    again = start(command)
    seen.until(lambda: (seen.stage().get("pid"), seen.stage().get("state")) == (again.pid, "tailing"), "its tail")
    again.terminate()
    again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0
    assert len(seen.log.snapshots()) == 1
    seen.close()


def test_an_adapter_that_cannot_be_loaded_is_a_clear_error(tmp_path: Path) -> None:
    child = start(command_line(PipelineSettings(SourceSpec("adapters.nowhere:Nothing", {})), tmp_path))
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == ConfigurationError.exit_code
    assert b"error[adapter-import]" in errors
    assert b"fix: " in errors
    assert b"Traceback" not in errors


def test_a_state_directory_that_cannot_be_written_is_a_clear_error(tmp_path: Path, data: Path) -> None:
    command = command_line(PipelineSettings(SourceSpec(MEMORY, {"file": str(data)})), tmp_path / "state")
    (tmp_path / "state" / "segments").rmdir()
    (tmp_path / "state" / "segments").touch()
    child = start(command)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == ReadOnlyState.exit_code
    assert b"error[state-not-writable]" in errors


def test_a_factory_makes_the_adapter_with_its_settings(data: Path) -> None:
    adapter = adapter_factory(MEMORY, {"file": str(data)})()
    assert [table.full_name for table in adapter.tables()] == ["issue"]
