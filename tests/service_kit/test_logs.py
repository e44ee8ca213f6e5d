"""One event per line, for people and machines; a repeated kind is held back and counted."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from service_kit import logs


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger(logs.LOGGER_NAME)
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.level, root.propagate = before


def written(form: str) -> str:
    stream = io.StringIO()
    logs.configure(form=form, level="info", stream=stream)
    log = logs.logger("endpoint")
    logs.event(log, logging.INFO, "consumer left", app="zero", why="it is gone", lag=0.12345, acked=None)
    logs.event(log, logging.DEBUG, "not said")
    return stream.getvalue()


@pytest.mark.usefixtures("restored")
def test_text_reads_as_key_value_pairs() -> None:
    line = written("text")
    assert line.endswith('info    endpoint: consumer left app=zero why="it is gone" lag=0.123\n')
    assert "not said" not in line


@pytest.mark.usefixtures("restored")
def test_json_is_one_object_per_line() -> None:
    record = json.loads(written("json"))
    assert record["event"] == "consumer left"
    assert (record["level"], record["part"], record["app"], record["lag"]) == ("info", "endpoint", "zero", 0.12345)
    assert "acked" not in record


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_trace_stays_with_its_event(form: str) -> None:
    stream = io.StringIO()
    logs.configure(form=form, level="info", stream=stream)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        logs.logger("endpoint").exception("stream failed")
    assert "stream failed" in stream.getvalue()
    assert "RuntimeError: boom" in stream.getvalue()


def test_a_kind_is_let_through_once_per_interval_and_counted() -> None:
    now = [0.0]
    throttle = logs.Throttle(10.0, clock=lambda: now[0])
    assert [throttle.admit("a") for _ in range(4)] == [0, None, None, None]
    assert throttle.admit("b") == 0
    now[0] = 10.0
    assert throttle.admit("a") == 3


def test_kinds_are_forgotten_oldest_first() -> None:
    now = [0.0]
    throttle = logs.Throttle(10.0, kinds=2, clock=lambda: now[0])
    for kind in ("a", "b", "c"):
        now[0] += 1
        throttle.admit(kind)
    assert throttle.admit("b") is None
    assert throttle.admit("a") == 0, "it was forgotten, so it is new"
