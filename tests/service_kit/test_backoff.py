"""Waits between attempts: they grow to a limit, and are short again after success."""

from __future__ import annotations

import pytest

from service_kit.backoff import LONGEST_RECONNECT_S, Backoff, reconnect_backoff


def test_waits_grow_to_a_bound_and_are_short_again_after_success() -> None:
    backoff = reconnect_backoff(chance=lambda: 1.0)
    waits = [backoff.seconds() for _ in range(10)]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_RECONNECT_S
    backoff.reset()
    assert backoff.seconds() == waits[0]


def test_failures_are_counted_until_success() -> None:
    backoff = Backoff(1.0, 4.0)
    assert [backoff.seconds() for _ in range(4)] == [1.0, 2.0, 4.0, 4.0]
    assert backoff.failures == 4
    backoff.reset()
    assert backoff.failures == 0


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 0.05), (0.5, 0.075), (1.0, 0.1)])
def test_jitter_takes_at_most_its_part_of_a_wait(chance: float, wait: float) -> None:
    assert reconnect_backoff(lambda: chance).seconds() == pytest.approx(wait)


def test_an_upstream_that_is_away_for_days_is_still_waited_for() -> None:
    """As a float, 2 ** 1024 raises: with 30 s between attempts that is after eight and a half hours."""
    assert Backoff(0.1, 30.0).delay(5_000) == 30.0
