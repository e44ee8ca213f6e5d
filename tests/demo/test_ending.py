"""The demo as a whole process: its steps, and what is left of it after Ctrl-C."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from tests.demo.conftest import SECONDS, start_demo

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


def test_the_buttons_are_for_the_page_alone(tmp_path: Path) -> None:
    demo = start_demo(tmp_path, "inline")
    try:
        answers = [
            _status(f"{demo.url}stages/app/stop", {}),
            _status(f"{demo.url}stages/moon/stop", {"X-Changesource-Demo": "1"}),
            _status(f"{demo.url}writer", {"X-Changesource-Demo": "1"}, b'{"perSecond": "many"}'),
            _status(f"{demo.url}writer", {"X-Changesource-Demo": "1"}, b'{"perSecond": 9}'),
        ]
        assert answers == [403, 404, 400, 200]
        demo.process.send(signal.SIGTERM)
        assert demo.process.wait(SECONDS) == 0
        assert demo.process.tree() == []
    finally:
        demo.process.kill()


def _status(url: str, headers: dict[str, str], body: bytes = b"{}") -> int:
    try:
        with build_opener(ProxyHandler({})).open(Request(url, body, headers)) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
