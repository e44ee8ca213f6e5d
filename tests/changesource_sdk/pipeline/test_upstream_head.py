"""How far the upstream is ahead of the log, also when it hangs or raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Column, Insert, Position, ReportingHead, Snapshot, Table, Transaction
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.endpoint.log_status import status_of_log
from changesource_sdk.endpoint.status import describe, set_gauges
from changesource_sdk.observe.metrics import EndpointMetrics
from changesource_sdk.pipeline import upstream_head
from changesource_sdk.pipeline.upstream_head import HeadWatch
from tests.changesource_sdk.pipeline.runner_fixtures import PATIENCE_S, running

ISSUE = Table("issue", [Column("id", int)])


class Headed:
    """An adapter whose head a test sets; every answer is announced."""

    def __init__(self, head: Position = 0) -> None:
        self.answer: Callable[[], Position] = lambda: head
        self.asked = threading.Semaphore(0)

    def tables(self) -> Sequence[Table]:
        return [ISSUE]

    def snapshot(self) -> Snapshot:
        return Snapshot(0, [])

    def changes(self, after: Position) -> Iterator[Transaction]:
        return iter(())

    def head(self) -> Position:
        try:
            return self.answer()
        finally:
            self.asked.release()

    def wait_for_answers(self, count: int = 2) -> None:
        """After the second answer from now on, the first is stored."""
        while self.asked.acquire(blocking=False):
            pass
        for _ in range(count):
            assert self.asked.acquire(timeout=PATIENCE_S)


def watch(adapter: Headed, clock: Callable[[], float] = time.time) -> HeadWatch:
    return HeadWatch(adapter, clock=clock, poll_s=0.001)


def test_the_distance_is_in_positions_and_in_seconds_since_the_log_lacks_something() -> None:
    now = [100.0]
    adapter = Headed(7)
    with closing(watch(adapter, lambda: now[0])) as head:
        adapter.wait_for_answers()
        now[0] = 105.0
        adapter.answer = lambda: 9
        adapter.wait_for_answers()
        now[0] = 110.0
        report = head.report(5)
        assert report is not None
        assert (report["head"], report["behind"], report["behind_s"]) == (9, 4, 10.0)
        report = head.report(8)
        assert report is not None
        assert (report["behind"], report["behind_s"]) == (1, 5.0)
        report = head.report(9)
        assert report is not None
        assert (report["behind"], report["behind_s"]) == (0, 0.0)


def test_positions_that_are_no_integers_are_equal_or_of_unknown_distance() -> None:
    adapter = Headed({"a": 1})
    with closing(watch(adapter)) as head:
        adapter.wait_for_answers()
        behind, equal = head.report({"a": 0}), head.report({"a": 1})
    assert behind is not None
    assert behind["behind"] is None
    assert equal is not None
    assert (equal["behind"], equal["behind_s"]) == (0, 0.0)


def test_a_head_that_raises_keeps_the_last_one_and_its_age() -> None:
    adapter = Headed(3)
    now = [50.0]

    def fail() -> Position:
        raise OSError("no route")

    with closing(watch(adapter, lambda: now[0])) as head:
        adapter.wait_for_answers()
        adapter.answer = fail
        adapter.wait_for_answers()
        now[0] = 80.0
        report = head.report(1)
    assert report is not None
    assert (report["head"], report["behind"], report["read_ms"]) == (3, 2, 50_000.0)
    assert report["error"] == "OSError: no route"


def test_a_head_that_hangs_delays_nothing(tmp_path: Path) -> None:
    store = MemoryStore([ISSUE])
    released = threading.Event()

    class Hanging(MemoryAdapter):
        def head(self) -> Position:
            released.wait(PATIENCE_S)
            return 0

    try:
        with running(lambda: Hanging(store=store), tmp_path) as seen:
            seen.until_generation(1)
            store.commit([Insert("issue", {"id": 1})])
            seen.until_position(1)
            document = status_of_log(SqliteLogStore(tmp_path))
    finally:
        released.set()
    assert document["upstream"] == {
        "default": {"head": None, "behind": "unknown", "behindSeconds": "unknown", "age": None, "error": ""}
    }


def test_status_and_metrics_show_the_distance_and_never_0_for_unknown(tmp_path: Path, monkeypatch: object) -> None:
    store = MemoryStore([ISSUE])
    assert isinstance(MemoryAdapter(store=store), ReportingHead)
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until(lambda: seen.stage().get("upstream") is not None)
        log_store = SqliteLogStore(tmp_path)
        document = describe(log_store, seen.log, [])
        metrics = EndpointMetrics()
        set_gauges(document, metrics)
        upstream = document["upstream"]
        assert isinstance(upstream, dict)
        assert (upstream["default"]["behind"], upstream["default"]["behindSeconds"]) == (0, 0.0)
        assert b'changesource_upstream_behind{source="default"} 0.0' in metrics.render()
        upstream["default"] |= {"behind": "unknown", "behindSeconds": "unknown"}
        set_gauges(document, metrics)
        assert b"changesource_upstream_behind{" not in metrics.render()


@pytest.mark.parametrize(
    ("behind", "behind_s", "age", "error", "expected"),
    [
        (0, 0.0, 1.0, "", (0, 0.0)),
        (0, 0.0, 60.0, "", ("unknown", "unknown")),
        (0, 0.0, 1.0, "OSError: no route", ("unknown", "unknown")),
        (3, 5.0, 60.0, "OSError: no route", (3, 65.0)),
        (None, 5.0, 0.0, "", ("unknown", 5.0)),
    ],
)
def test_an_old_answer_does_not_say_that_the_log_has_everything(
    tmp_path: Path, behind: int | None, behind_s: float, age: float, error: str, expected: tuple[object, object]
) -> None:
    log_store = SqliteLogStore(tmp_path)
    log_store.open_writer(lambda: 1).close()
    then = (time.time() - age) * 1000
    head = {"head": 9, "behind": behind, "behind_s": behind_s, "read_ms": then, "error": error}
    log_store.reports.leave("pipeline", {"stage": "pipeline", "updated_ms": then, "upstream": head})
    upstream = status_of_log(log_store)["upstream"]
    assert isinstance(upstream, dict)
    positions, seconds = expected
    assert upstream["default"]["behind"] == positions
    assert upstream["default"]["behindSeconds"] == (seconds if seconds == "unknown" else pytest.approx(seconds, abs=1))


def test_the_number_of_heads_is_bounded() -> None:
    adapter = Headed()
    head = HeadWatch(adapter, poll_s=0.0)
    head.close()
    numbers = iter(range(1, upstream_head.MOST_HEADS + 50))
    adapter.answer = lambda: next(numbers)
    for _ in range(upstream_head.MOST_HEADS + 20):
        head._poll()
    assert len(head._ahead) <= upstream_head.MOST_HEADS
