"""Warnings that last: one per code and place, current until cleared or no longer said, bounded in number."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from changesource_sdk.changelog.coordination.reports import Reports
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.observe.warnings import (
    KEEP_S,
    MOST,
    REPORT,
    WINDOW_S,
    StandingWarnings,
    Warned,
    WarningBook,
    clear,
    is_current,
    read_report,
    warn,
    warning_documents,
)
from service_kit.logs import event, logger

log = logger("store")


@pytest.fixture
def reports(tmp_path: Path) -> Reports:
    return Reports(StateDirectory(tmp_path).create().stages)


@pytest.fixture
def book(reports: Reports) -> Iterator[WarningBook]:
    made = WarningBook(reports)
    own, everything = logging.getLogger("changesource"), logging.getLogger()
    own.setLevel(logging.INFO)
    own.addHandler(made)
    everything.addHandler(made)
    own.propagate = False
    yield made
    everything.removeHandler(made)
    made.close()


def current(book: WarningBook) -> list[Warned]:
    return [found for found in book.warnings() if is_current(found, time.time() * 1000)]


def test_the_same_warning_again_is_one_that_lasts(book: WarningBook) -> None:
    warn(log, "stalled", "7:42", "it waits", "look at it", holds="stream", waited_s=30)
    warn(log, "stalled", "7:42", "it waits", "look at it", holds="stream", waited_s=60)
    (found,) = current(book)
    assert (found.code, found.where, found.count, found.holds, found.fix) == (
        "stalled",
        "7:42",
        2,
        "stream",
        "look at it",
    )
    assert found.message == "it waits waited_s=60"
    assert found.first_ms <= found.last_ms


def test_a_warning_that_is_cleared_is_past(book: WarningBook) -> None:
    warn(log, "stalled", "7:42", "it waits")
    warn(log, "stalled", "7:43", "it waits, too")
    clear(log, "stalled", "7:42", "it is whole")
    assert [found.where for found in current(book)] == ["7:43"]
    shown = warning_documents(book.warnings(), time.time())
    assert [(each["where"], each["current"]) for each in shown] == [("7:43", True), ("7:42", False)]


def test_a_plain_warning_of_any_logger_goes_by_the_window(book: WarningBook) -> None:
    logging.getLogger("somebody.else").warning("%d tries left", 2)
    event(log, logging.WARNING, "a record was set aside", record="t[0] offset 1")
    event(log, logging.WARNING, "a record was set aside", record="t[0] offset 2")
    other, aside = book.warnings()
    assert (other.source, other.message) == ("somebody.else", "2 tries left")
    assert (aside.count, aside.message) == (2, "a record was set aside record=t[0] offset 2")
    now = time.time()
    assert is_current(aside, (now + WINDOW_S - 1) * 1000)
    assert not is_current(aside, (now + WINDOW_S + 1) * 1000)
    assert len(warning_documents(book.warnings(), now + KEEP_S - 1)) == 2
    assert warning_documents(book.warnings(), now + KEEP_S + 1) == []


def test_standing_warnings_stay_until_they_are_not_among_those_that_hold(book: WarningBook) -> None:
    StandingWarnings(log, "not-synced").set({"table a": "a has no key", "table b": "b has no key"})
    # Another process, which has not said any of them, finds one mended.
    StandingWarnings(log, "not-synced").set({"table b": "b has no key"})
    (found,) = current(book)
    assert found.where == "table b"
    assert is_current(found, (time.time() + 10 * KEEP_S) * 1000)


def test_what_is_kept_is_bounded_and_what_is_over_goes_first(book: WarningBook) -> None:
    warn(log, "holds", "here", "the oldest of all, and it holds", standing=True)
    for number in range(MOST + 5):
        warn(log, "many", str(number), "one of many")
        clear(log, "many", str(number), "over")
    found = book.warnings()
    assert len(found) == MOST
    assert found[0].code == "holds"


def test_the_report_of_a_former_process_is_over(reports: Reports) -> None:
    former = WarningBook(reports)
    record = log.makeRecord(log.name, logging.WARNING, "", 0, "it waits", (), None)
    record.__dict__["notice"] = {"code": "stalled", "where": "x", "standing": True}
    former.handle(record)
    former.close()
    assert [found.cleared_ms for found in read_report(reports.all()[REPORT])] == [0.0]
    book = WarningBook(reports)
    (found,) = book.warnings()
    book.close()
    assert found.cleared_ms
    assert read_report(reports.all()[REPORT]) == [found]


def test_a_report_of_another_version_is_passed_over() -> None:
    assert read_report({"warnings": [{"odd": 1}]}) == []
    assert read_report(None) == []
