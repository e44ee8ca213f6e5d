"""`serve` from the outside: it serves, it stops cleanly, it explains why it cannot start."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from websockets.exceptions import WebSocketException

from changesource_cli.app import app
from changesource_cli.output import ExitCode
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.fetch_status import fetch_status
from changesource_sdk.testing.fake_cache import FakeCache
from protocol.rules import check
from tests.changesource_cli.conftest import ROOT, StartServe, run
from tests.support.tools import NPM_MANIFEST

UNFLAGGED = ("adapter", "settings", "mapping", "sources")


async def test_a_store_is_served_and_stops_cleanly(start_serve: StartServe) -> None:
    served = start_serve()
    cache = FakeCache(served.url)
    await cache.initial_sync()
    assert set(cache.rows("issue")) == {"1", "2"}
    assert check(cache.transcript) == []
    status = fetch_status(served.url)
    assert status["pipeline"]["running"] is True  # type: ignore[index]
    pipeline = int(status["pipeline"]["pid"])  # type: ignore[index]
    assert served.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pipeline, 0)


async def test_snapshots_are_served_again_after_a_kill_without_the_store(
    start_serve: StartServe, data_file: Path
) -> None:
    served = start_serve()
    cache = FakeCache(served.url)
    await cache.initial_sync()
    served.stop(signal.SIGKILL)
    again = start_serve()
    other = FakeCache(again.url, app_id="second")
    await other.initial_sync()
    assert str(other.replica_version) > str(cache.replica_version)
    assert other.rows("issue") == cache.rows("issue")


def test_an_interrupt_has_its_own_exit_code(start_serve: StartServe) -> None:
    assert start_serve().stop(signal.SIGINT) == 130


def test_a_port_in_use_is_an_endpoint_problem(tmp_path: Path, data_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run("serve", "memory", "--set", f"file={data_file}", "--listen", listen, cwd=tmp_path)
    assert ended.returncode == 5
    assert ended.stderr.startswith("error[port-in-use]")
    assert "fix: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_state_directory_serves_one_process_at_a_time(
    start_serve: StartServe, tmp_path: Path, data_file: Path
) -> None:
    served = start_serve()
    arguments = ("--set", f"file={data_file}", "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state"))
    ended = run("serve", "memory", *arguments, cwd=tmp_path)
    assert ended.returncode == 4
    assert str(served.process.pid) in ended.stderr


def test_a_state_directory_that_cannot_be_is_a_state_problem(tmp_path: Path, data_file: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("serve", "memory", "--set", f"file={data_file}", "--state", "file/state", "--json", cwd=tmp_path)
    assert ended.returncode == 4
    assert json.loads(ended.stderr)["error"]["code"] == "state-not-writable"


@pytest.mark.parametrize("room", [0, 5, 600])
def test_a_full_disk_is_a_state_problem_with_a_message(tmp_path: Path, data_file: Path, room: int) -> None:
    """No file can grow beyond `room` bytes: the lock, the settings or the log find none."""
    arguments = ("--set", f"file={data_file}", "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state"))
    ended = run("serve", "memory", "--json", *arguments, cwd=tmp_path, file_size=room)
    assert ended.returncode == 4, ended.stderr
    assert "Traceback" not in ended.stderr
    assert json.loads(ended.stderr.splitlines()[-1])["error"]["code"] in ("disk-full", "log-failed")


async def test_a_state_directory_that_is_removed_is_said_and_made_again(
    start_serve: StartServe, tmp_path: Path
) -> None:
    served = start_serve()
    cache = FakeCache(served.url)
    await cache.initial_sync()
    shutil.rmtree(tmp_path / "state")
    assert served.process.stderr is not None
    for line in served.process.stderr:
        if "state directory is gone" in line:
            break
    async with asyncio.timeout(60):
        while not await _synced(FakeCache(served.url)):
            pass
    assert (tmp_path / "state" / "log.sqlite").exists()
    assert served.stop() == 0


async def _synced(cache: FakeCache) -> bool:
    """Whether a new consumer gets the rows; nothing listens while `serve` starts over."""
    try:
        await cache.initial_sync()
    except (OSError, WebSocketException):
        return False
    return set(cache.rows("issue")) == {"1", "2"}


runner = CliRunner()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["serve", "memry"], 2, "did you mean 'memory'?"),
        (["serve", "memory", "--set", "file"], 2, "not key=value"),
        (["serve", "memory", "--set", "fil=x"], 2, "did you mean 'file'?"),
        (["serve", "memory", "--set", "file=/does/not/exist"], 2, "memory-file"),
        (["serve", "memory", "--config", "none.toml"], 2, "cannot read the configuration file"),
        (["serve", "memory", "--listen", "nowhere"], 2, "HOST:PORT"),
        (["serve", "--nonsense"], 2, "No such option"),
        (["inspect", "nothing-here"], 4, "no such directory"),
        (["inspect", "127.0.0.1:1"], 5, "cannot read"),
        (["tail", "127.0.0.1:1", "--from", "start"], 5, "cannot connect"),
        (["compact", "--state", "nothing-here", "--runner", "inline"], 4, "no such state directory"),
        (["verify", "--state", "nothing-here"], 4, "no such state directory"),
        (["replay", "--state", "nothing-here"], 4, "no such state directory"),
    ],
)
def test_mistakes_have_a_message_and_an_exit_code(arguments: list[str], code: int, says: str) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == code
    assert says in result.output
    assert "Traceback" not in result.output
    assert not Path("nothing-here").exists()


def test_bad_toml_and_unknown_keys_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "cs.toml"
    for text, says in (("listen = ", "not valid TOML"), ('lissen = "h:1"', "did you mean 'listen'?")):
        file.write_text(text)
        result = runner.invoke(app, ["serve", "memory", "--config", str(file)])
        assert result.exit_code == 2
        assert says in result.output
        assert "cs.toml" in result.output


def test_show_config_tells_values_and_origins_but_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "cs.toml"
    file.write_text('adapter = "memory"\ngrace = 3\n[set]\nfile = "d.json"')
    options = ["serve", "--config", str(file), "--show-config", "--json", "--api-key", "hunter2"]
    result = runner.invoke(app, options, env={"CHANGESOURCE_TAIL_BYTES": "1000"})
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert shown["grace"] == {"value": 3.0, "origin": str(file)}
    assert shown["tail_bytes"] == {"value": 1000, "origin": "CHANGESOURCE_TAIL_BYTES"}
    assert shown["settings"] == {"value": {"file": "d.json"}, "origin": str(file)}
    assert shown["api_key"]["origin"] == "--api-key"
    assert "hunter2" not in result.output
    people = runner.invoke(app, [option for option in options if option != "--json"])
    assert "hunter2" not in people.output
    assert "changesource-state" in people.output


def test_help_shows_the_effective_value_and_its_origin() -> None:
    result = runner.invoke(app, ["serve", "--help"], env={"CHANGESOURCE_GRACE": "3", "COLUMNS": "200"})
    assert result.exit_code == 0
    assert "Now: 3.0 (CHANGESOURCE_GRACE)" in result.output
    assert "Examples" in result.output


def test_version_is_told_to_people_and_machines() -> None:
    assert runner.invoke(app, ["--version"]).output.startswith("changesource ")
    assert json.loads(runner.invoke(app, ["--version", "--json"]).output)["paths"] == ["/changes/v0/stream"]


def test_version_names_the_zero_release_that_the_tests_install() -> None:
    installed = json.loads((NPM_MANIFEST / "package.json").read_text())["dependencies"]["@rocicorp/zero"]
    assert runner.invoke(app, ["--version"]).output.endswith(f", for Zero {installed}\n")
    assert json.loads(runner.invoke(app, ["--version", "--json"]).output)["zero"] == [installed]


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ('[mapping.issue]\nfilter = { function = "nowhere:f" }', "mapping.issue.filter"),
        ('[mapping.issue]\nfilter = { sql = "id > 1" }', "mapping.issue.filter"),
        ('mappings = "nowhere:MAPPINGS"', "mappings"),
    ],
)
def test_a_mapping_that_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, data_file: Path, toml: str, key: str
) -> None:
    (tmp_path / "cs.toml").write_text(f'adapter = "memory"\nrunner = "inline"\n{toml}\n[set]\nfile = "{data_file}"\n')
    result = run("serve", "--config", "cs.toml", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert result.returncode == 2
    assert "error[bad-mapping]" in result.stderr
    assert key in result.stderr
    assert not (tmp_path / "changesource-state" / "log.sqlite").exists()


def test_every_setting_is_an_option_and_every_option_has_its_text() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"
    offered = {parameter.name for parameter in commands["serve"].params}
    assert {field.name for field in fields(ServeConfig)} - set(UNFLAGGED) <= offered


def test_the_guide_names_every_setting_and_exit_code() -> None:
    guide = (ROOT / "docs" / "how-to" / "run-an-endpoint.md").read_text()
    flags = ["--" + field.name.replace("_", "-") for field in fields(ServeConfig) if field.name not in UNFLAGGED]
    missing = [flag for flag in flags if f"`{flag}`" not in guide]
    missing += [str(int(code)) for code in ExitCode if f"| {int(code)} |" not in guide]
    assert missing == []
