"""The demo as a whole process: its steps, and what is left of it after Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.changesource_demo.conftest import SECONDS, start_demo

ROOT = Path(__file__).parents[2]
CTRL_C = b"\x03"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SECONDS + 60)]


def test_ctrl_c_ends_spark_and_everything_else(tmp_path: Path) -> None:
    demo = start_demo(tmp_path, "spark")
    try:
        steps = [json.loads(line)["event"] for line in demo.process.lines]
        assert steps == ["plan", "store", "pipeline", "endpoint", "app", "waiting", "cache", "page"]
        assert len(demo.process.tree()) > 5
        demo.process.send(signal.SIGINT)
        assert demo.process.wait(SECONDS) == 0
        assert demo.process.tree() == []
    finally:
        demo.process.kill()


def test_ctrl_c_on_the_terminal_of_make_demo_prints_no_error() -> None:
    ours, terminal = pty.openpty()
    # `-o`: the environment of the tests has what the demo needs, so make installs nothing.
    command = ["make", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.demo", "demo"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, preexec_fn=_control
    )
    os.close(terminal)
    try:
        screen = _read(ours, until=b"store:")
        assert b"within a minute" in screen
        os.write(ours, CTRL_C)
        screen = _read(ours)
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"***" not in screen
    assert b"Traceback" not in screen


def _control() -> None:
    """Make standard input the controlling terminal, whose Ctrl-C reaches make and the demo as a person's does."""
    os.close(os.open(os.ttyname(0), os.O_RDWR))


def _read(terminal: int, until: bytes | None = None) -> bytes:
    """What the terminal shows, until a text comes or all programs on it have ended."""
    screen = b""
    while until is None or until not in screen:
        try:
            screen += os.read(terminal, 4096)
        except OSError:  # Linux's end of a terminal that no process has open.
            assert until is None, screen
            return screen
    return screen
