"""The demo's processes: started, ready, stopped, started again where they were."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from changesource_demo.process import ManagedProcess
from changesource_sdk.errors import EndpointError
from tests.support.ports import is_listening
from tests.support.waiting import until

LISTEN = """
import json, os, signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("a word on the side", file=sys.stderr, flush=True)
print("not an event", flush=True)
print(json.dumps({"event": "listening", "port": server.getsockname()[1], "pid": os.getpid()}), flush=True)
signal.pause()
"""

TELL = """
import os, sys, time
print([os.environ.get(name) for name in ("ZERO_PORT", "CHANGESOURCE_RUNNER", "GIVEN")], file=sys.stderr, flush=True)
print('{"event": "listening"}', flush=True)
time.sleep(600)
"""


def made(folder: Path, program: str, **settings: str) -> ManagedProcess:
    def command(port: int) -> list[str]:
        return [sys.executable, "-c", program, str(port)]

    return ManagedProcess("listener", command, settings=lambda _: settings, output=folder / "listener.log")


def state_of(process: ManagedProcess) -> str:
    """Its state now: mypy takes a property for the same value as a moment ago."""
    return process.state


async def test_a_stage_keeps_its_port_when_it_is_started_again(tmp_path: Path) -> None:
    stage = made(tmp_path, LISTEN)
    await stage.start()
    assert state_of(stage) == "running"
    port = stage.port
    assert is_listening(port)
    await stage.stop()
    assert state_of(stage) == "stopped"
    assert not is_listening(port)
    await stage.start()
    assert (stage.state, stage.port) == ("running", port)
    assert is_listening(port)
    await stage.stop()


async def test_starting_and_stopping_twice_is_once(tmp_path: Path) -> None:
    stage = made(tmp_path, LISTEN)
    await stage.stop()
    await asyncio.gather(stage.start(), stage.start())
    assert (tmp_path / "listener.log").read_text().count("word") == 1
    await asyncio.gather(stage.stop(), stage.stop())
    assert stage.state == "stopped"


async def test_a_stage_that_ends_before_it_is_ready_says_where_to_look(tmp_path: Path) -> None:
    stage = made(tmp_path, "import sys; sys.exit('no such luck')")
    with pytest.raises(EndpointError, match="the listener did not start") as raised:
        await stage.start()
    assert str(tmp_path / "listener.log") in raised.value.fix
    assert "no such luck" in (tmp_path / "listener.log").read_text()
    assert stage.state == "stopped"


async def test_a_start_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    stage = made(tmp_path, "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(600)")
    starting = asyncio.create_task(stage.start())
    said = tmp_path / "listener.log"
    pid = await asyncio.to_thread(until, lambda: said.exists() and said.read_text(), "its process id", seconds=60)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def test_a_stage_sees_its_own_settings_and_not_the_shells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZERO_PORT", "1")
    monkeypatch.setenv("CHANGESOURCE_RUNNER", "abacus")
    stage = made(tmp_path, TELL, GIVEN="yes")
    await stage.start()
    await stage.stop()
    assert (tmp_path / "listener.log").read_text() == "[None, None, 'yes']\n"
