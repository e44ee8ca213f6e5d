"""`serve --role`: pipeline and endpoints as processes of their own over one log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changesource_cli.app import app
from changesource_sdk.endpoint.fetch_status import fetch_status
from changesource_sdk.errors import EndpointError
from changesource_sdk.testing.fake_cache import FakeCache
from tests.changesource_cli.conftest import Served, StartServe, environment
from tests.support.peers.postgres_server import PostgresServer
from tests.support.ports import free_port


@pytest.fixture
def pipeline() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def command(tmp_path: Path, data_file: Path, *options: str) -> list[str]:
    state = str(tmp_path / "pipeline")
    serve = [sys.executable, "-m", "changesource_cli", "serve", "memory", "--json"]
    return [*serve, "--set", f"file={data_file}", "--state", state, "--role", "pipeline", *options]


def start_pipeline(
    started: list[subprocess.Popen[str]], tmp_path: Path, data_file: Path, *options: str
) -> subprocess.Popen[str]:
    arguments = command(tmp_path, data_file, *options)
    pipe = subprocess.PIPE
    process = subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True, env=environment(), cwd=tmp_path)
    started.append(process)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "running"
    return process


@pytest.mark.parametrize("scheme", ["", "file://"], ids=["shared directory", "URI"])
async def test_an_endpoint_without_a_pipeline_serves_what_a_pipeline_elsewhere_writes(
    scheme: str,
    start_serve: StartServe,
    postgres: PostgresServer,
    tmp_path: Path,
    data_file: Path,
    pipeline: list[subprocess.Popen[str]],
) -> None:
    log = ("--log", postgres.create_database("log"), "--spool", f"{scheme}{tmp_path / 'spool'}")
    endpoint: Served = start_serve("--role", "endpoint", *log)
    writer = start_pipeline(pipeline, tmp_path, data_file, *log)
    cache = FakeCache(endpoint.url)
    await cache.initial_sync()
    assert set(cache.rows("issue")) == {"1", "2"}
    assert "pipeline" not in fetch_status(endpoint.url)
    writer.terminate()
    assert writer.wait(90) == 0
    stages = fetch_status(endpoint.url)["stages"]
    assert isinstance(stages, dict)
    assert stages["pipeline"]["state"] == "stopped", "seen from a host without the pipeline"
    _look_from_elsewhere(log, tmp_path / "elsewhere")
    other = FakeCache(endpoint.url, app_id="second")
    await other.initial_sync()
    assert other.rows("issue") == cache.rows("issue")
    assert endpoint.stop() == 0


def _look_from_elsewhere(log: tuple[str, ...], state: Path) -> None:
    """`inspect` and `doctor` need nothing but the log."""
    looked = CliRunner().invoke(app, ["inspect", *log[:2], "--json"])
    document = json.loads(looked.stdout)
    assert (document["log"]["generation"], document["stages"]["pipeline"]["verdict"]) == (1, "stopped")
    examined = CliRunner().invoke(app, ["doctor", *log, "--state", str(state), "--listen", "127.0.0.1:0", "--json"])
    found = {finding["check"]: finding["message"] for finding in json.loads(examined.stdout)}
    assert found["pipeline"] == "pipeline stopped"
    assert found["log"].startswith("generation 1")


async def test_roles_share_a_state_directory_of_one_host_too(
    start_serve: StartServe, tmp_path: Path, data_file: Path, pipeline: list[subprocess.Popen[str]]
) -> None:
    shared = ("--state", str(tmp_path / "shared"))
    start_pipeline(pipeline, tmp_path, data_file, *shared)
    caches = [FakeCache(start_serve("--role", "endpoint", *shared).url, app_id=f"app{n}") for n in range(2)]
    for cache in caches:
        await cache.initial_sync()
    assert caches[0].rows("issue") == caches[1].rows("issue") != {}


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--log", "mysql://host/db"), 2, "bad-log-url"),
        (("--log", "postgresql://host/db", "--log-schema", "Bad Name"), 2, "bad-log-schema"),
        (("--spool", "s3://bucket/spool"), 2, "bad-spool"),
        (("--role", "both"), 2, "bad-value"),
    ],
)
def test_a_log_that_cannot_be_is_refused(
    tmp_path: Path, data_file: Path, options: tuple[str, ...], code: int, word: str
) -> None:
    done = subprocess.run(
        command(tmp_path, data_file, *options), capture_output=True, text=True, env=environment(), timeout=120
    )
    assert done.returncode == code
    assert word in done.stdout + done.stderr


def test_a_database_that_is_not_there_is_a_problem_of_the_log_and_its_password_stays_secret(
    tmp_path: Path, data_file: Path
) -> None:
    log = f"postgresql://me:sesame@127.0.0.1:{free_port()}/db"
    done = subprocess.run(
        command(tmp_path, data_file, "--log", log), capture_output=True, text=True, env=environment(), timeout=120
    )
    assert done.returncode == 4
    assert "log-unreachable" in done.stdout + done.stderr
    shown = subprocess.run(
        command(tmp_path, data_file, "--log", log, "--show-config"),
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=True,
    )
    assert "sesame" not in done.stdout + done.stderr + shown.stdout


def test_an_endpoint_whose_log_is_out_of_reach_stays_up_and_says_so(start_serve: StartServe) -> None:
    endpoint = start_serve("--role", "endpoint", "--log", f"postgresql://me@127.0.0.1:{free_port()}/db")
    with pytest.raises(EndpointError, match="log-unreachable"):
        fetch_status(endpoint.url)
    assert endpoint.stop() == 0
