"""A source that does not answer is distinguished from one that has nothing to say."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from changesource_sdk.pipeline.patience import CODE, STUCK_AFTER_S, Patience


class Source:
    """Calls of `changes()` that take as long as the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.patience = Patience(clock=lambda: self.now)

    def answer(self, *seconds: float) -> None:
        """One call that gives something after each of these times, and then returns at once."""

        def transactions() -> Iterator[int]:
            for each in seconds:
                self.now += each
                yield 1

        assert list(self.patience.answers(transactions)) == [1] * len(seconds)

    def hang(self, seconds: float) -> None:
        """A call that has not answered yet, checked after so long; then it returns."""

        def nothing() -> Iterator[int]:
            self.now += seconds
            self.patience.warn_if_overdue()
            return
            yield 1

        list(self.patience.answers(nothing))


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("changesource"), "propagate", True)
    caplog.set_level(logging.INFO, logger="changesource")
    return caplog


def notices(said: pytest.LogCaptureFixture) -> list[str]:
    return ["holds" if record.__dict__["notice"].get("holds") else "clears" for record in said.records]


def test_one_that_usually_returns_and_now_does_not_holds_the_stream_up(said: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.answer()
    source.hang(STUCK_AFTER_S + 13)
    assert notices(said) == ["holds", "clears"]
    assert said.records[0].__dict__["fields"]["code"] == CODE
    assert said.records[0].getMessage() == "the source has not answered for 43 s"


def test_one_that_waits_for_changes_may_wait(said: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.answer(3600.0)
    source.hang(3600.0)
    assert notices(said) == []


def test_one_that_always_takes_long_is_given_longer(said: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.answer()
    source.hang(25.0)
    source.hang(60.0)
    assert notices(said) == []
    source.hang(200.0)
    assert notices(said) == ["holds", "clears"]
