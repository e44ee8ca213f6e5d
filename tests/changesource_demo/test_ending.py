"""The demo as a whole process: its steps, and what is left of it after Ctrl-C."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.changesource_demo.conftest import SECONDS, start_demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SECONDS + 60)]


def test_ctrl_c_ends_spark_and_everything_else(tmp_path: Path) -> None:
    demo = start_demo(tmp_path, "spark")
    try:
        steps = [json.loads(line)["event"] for line in demo.process.lines]
        assert steps == ["store", "pipeline", "endpoint", "app", "waiting", "cache", "page"]
        assert len(demo.process.tree()) > 5
        demo.process.send(signal.SIGINT)
        assert demo.process.wait(SECONDS) == 130
        assert demo.process.tree() == []
    finally:
        demo.process.kill()
