"""The pipeline's process: started again when it ends, stopped with its parent, its words passed on once."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from changesource_cli.serving import supervisor as supervising
from changesource_cli.serving.child_output import ChildOutput
from changesource_cli.serving.supervisor import Supervisor
from changesource_sdk.observe.relayed import encode


def supervisor(code: str, grace: float = 5.0) -> Supervisor:
    return Supervisor([sys.executable, "-c", code], dict(os.environ), grace=grace)


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("changesource"), "propagate", True)
    caplog.set_level(logging.INFO, logger="changesource")
    return caplog


class Starts:
    """A named pipe that a child opens: its start, as something to wait for."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.says = f"open({str(path)!r}, 'w').write('.');"
        self._path = path

    async def next(self) -> str:
        return await asyncio.wait_for(asyncio.to_thread(self._path.read_text), 60)


async def test_a_child_that_ends_is_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervising, "FIRST_DELAY", 0.01)
    starts = Starts(tmp_path / "starts")
    watched = supervisor(starts.says + "raise SystemExit(7)")
    running = asyncio.create_task(watched.run())
    for _ in range(3):
        assert await starts.next() == "."
    watched.stop()
    await running
    assert watched.health.starts >= 3
    assert watched.health.as_json()["running"] is False


async def test_refused_settings_end_the_first_run_for_good() -> None:
    watched = supervisor("raise SystemExit(2)")
    await asyncio.wait_for(watched.run(), 60)
    assert (watched.health.starts, watched.health.last_exit) == (1, 2)


async def test_refused_settings_are_tried_again_while_there_is_a_log_to_serve(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervising, "FIRST_DELAY", 0.01)
    starts = Starts(tmp_path / "starts")
    watched = supervisor(starts.says + "raise SystemExit(2)")
    watched.is_served = lambda: True
    running = asyncio.create_task(watched.run())
    for _ in range(2):
        assert await starts.next() == "."
    watched.stop()
    await running
    assert watched.health.starts >= 2


async def test_a_stop_is_a_signal_first_and_a_kill_after_the_grace(tmp_path: Path) -> None:
    polite, stubborn = Starts(tmp_path / "polite"), Starts(tmp_path / "stubborn")
    ignoring = "import signal,sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    for starts, prelude, ended in ((polite, "import sys;", -15), (stubborn, ignoring, -9)):
        watched = supervisor(f"{prelude} {starts.says} sys.stdin.read()", grace=0.5)
        running = asyncio.create_task(watched.run())
        await starts.next()
        watched.stop()
        await asyncio.wait_for(running, 60)
        assert watched.health.last_exit == ended


async def test_a_crash_is_told_with_what_the_child_said_last(heard: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    starts = Starts(tmp_path / "starts")
    watched = supervisor(starts.says + "raise RuntimeError('boom')")
    running = asyncio.create_task(watched.run())
    await starts.next()
    await starts.next()
    watched.stop()
    await running
    assert any("RuntimeError: boom" in record.getMessage() for record in heard.records)


def test_lines_keep_their_level_and_are_told_once(heard: pytest.LogCaptureFixture) -> None:
    output = ChildOutput()
    record = logging.makeLogRecord({"name": "changesource.sqlite", "levelno": logging.WARNING, "levelname": "WARNING"})
    record.msg = "table notes has no key and is skipped"
    for _ in range(3):
        output.take(encode(record))
    output.take("Traceback (most recent call last):")
    output.take("error[writer-fenced]: another writer took over (log)")
    told = [(record.levelname, record.getMessage()) for record in heard.records]
    assert told == [
        ("WARNING", "table notes has no key and is skipped"),
        ("ERROR", "error[writer-fenced]: another writer took over (log)"),
    ]
