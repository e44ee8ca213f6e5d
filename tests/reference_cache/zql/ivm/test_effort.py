"""The limits of a pipeline's work, with clocks that the test moves."""

from __future__ import annotations

import pytest

from reference_cache.zql.ivm.effort import LONGEST_PUSH, Effort, Overrun
from reference_cache.zql.ivm.time_slice import TimeSlice

PUSH_SECONDS = 1.0


class Clocks:
    """A thread that works or waits for a processor."""

    def __init__(self) -> None:
        self.now = 100.0
        self.used = 5.0
        self.effort = Effort(TimeSlice(1000.0), lambda: self.now, lambda: self.used)

    def pass_time(self, seconds: float, share: float) -> None:
        """Let time pass in checks of a millisecond, with a share of a processor; raises `Overrun`."""
        for _ in range(round(seconds * 1000)):
            self.now += 0.001
            self.used += 0.001 * share
            self.effort.expired()

    def begin_turn(self, owner: object) -> None:
        self.effort.note_change()
        self.effort.turn += 1
        self.effort.owner = owner
        self.effort.expired()


@pytest.fixture
def clocks() -> Clocks:
    clocks = Clocks()
    clocks.effort.limit_pushes(PUSH_SECONDS)
    return clocks


def test_one_change_that_takes_long_stops_its_pipeline(clocks: Clocks) -> None:
    clocks.begin_turn("query")
    clocks.pass_time(LONGEST_PUSH, 1.0)
    with pytest.raises(Overrun, match="one change takes too long"):
        clocks.pass_time(LONGEST_PUSH, 1.0)


def test_a_pipeline_that_waits_for_a_processor_is_not_stopped(clocks: Clocks) -> None:
    """Even in a step that has used much processor time before."""
    for number in range(200):
        clocks.begin_turn(number)
        clocks.pass_time(0.005, 1.0)
    clocks.begin_turn("query")
    clocks.pass_time(3.0, 0.0)
    clocks.pass_time(0.05, 1.0)


def test_queries_that_delay_a_step_are_stopped(clocks: Clocks) -> None:
    with pytest.raises(Overrun, match="changes take too long"):
        for _ in range(100):
            clocks.begin_turn("query")
            clocks.pass_time(0.05, 1.0)


def test_queries_of_a_step_on_a_busy_machine_are_not_stopped(clocks: Clocks) -> None:
    """The same step with a twentieth of a processor takes twenty times as long."""
    for _ in range(100):
        clocks.begin_turn("query")
        clocks.pass_time(0.05, 0.05)


def test_other_queries_do_not_pay_for_an_expensive_one(clocks: Clocks) -> None:
    with pytest.raises(Overrun):
        for _ in range(100):
            clocks.begin_turn("expensive")
            clocks.pass_time(0.05, 1.0)
    clocks.begin_turn("cheap")
    clocks.pass_time(0.002, 1.0)


def test_without_a_limit_nothing_is_stopped(clocks: Clocks) -> None:
    clocks.begin_turn("query")
    clocks.effort.free()
    clocks.pass_time(5.0, 1.0)
