"""Progress of a snapshot, and errors told once."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from changesource_sdk.observe.progress import LINE_INTERVAL, Bar, Lines, StageWatch


class Recorder:
    """A display that remembers."""

    def __init__(self) -> None:
        self.shown: list[object] = []

    def show(self, done: int, total: int, rows: int) -> None:
        self.shown.append((done, total, rows))

    def finish(self) -> None:
        self.shown.append("finish")


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("changesource"), "propagate", True)
    caplog.set_level(logging.INFO, logger="changesource")
    return caplog


def report(state: str, **fields: object) -> dict[str, dict[str, object]]:
    return {"pipeline": {"state": state, "updated_ms": 100.0, **fields}}


def test_a_snapshot_is_shown_from_its_start_to_its_end(heard: pytest.LogCaptureFixture) -> None:
    display = Recorder()
    watch = StageWatch(display)
    watch.update(report("starting"))
    watch.update(report("snapshot", done=1, total=4, rows=10))
    watch.update(report("snapshot", done=4, total=4, rows=40))
    watch.update(report("tailing", rows=40, watermark="07"))
    watch.update(report("tailing", rows=40, watermark="07"))
    assert display.shown == [(1, 4, 10), (4, 4, 40), "finish"]
    assert [record.getMessage() for record in heard.records] == ["snapshot complete"]


def test_an_error_is_told_once_and_again_after_it_was_over(heard: pytest.LogCaptureFixture) -> None:
    watch = StageWatch(Recorder())
    failing = report("backing-off", error={"code": "down", "message": "store is down", "where": "", "fix": "start it"})
    for stages in (failing, failing, report("tailing", error=None), failing):
        watch.update(stages)
    assert [record.getMessage() for record in heard.records] == ["store is down"] * 2
    assert heard.records[0].fields == {"stage": "pipeline", "code": "down", "fix": "start it"}  # type: ignore[attr-defined]


def test_reports_of_a_former_run_are_no_news(heard: pytest.LogCaptureFixture) -> None:
    watch = StageWatch(Recorder(), since_ms=200.0)
    watch.update(report("backing-off", error={"message": "old"}))
    assert heard.records == []


def test_lines_come_at_an_interval(heard: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    lines = Lines(lambda: now[0])
    for _ in range(3):
        lines.show(1, 4, 10)
        now[0] += LINE_INTERVAL / 2
    assert len(heard.records) == 2


def test_the_bar_shows_parts_and_rows_and_goes_away() -> None:
    written = io.StringIO()
    bar = Bar(Console(file=written, force_terminal=True, width=120))
    bar.show(0, 4, 0)
    bar.show(2, 4, 12345)
    bar.finish()
    bar.finish()
    assert "2/4" in written.getvalue()
    assert "12,345 rows" in written.getvalue()
