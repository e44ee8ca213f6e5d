"""How fast a client may send, and how often its mutations are run."""

from __future__ import annotations

import pytest

from reference_cache.sync_server import rates
from reference_cache.sync_server.rates import ClientRate, MutationLimit, RateLimiter

RATE = ClientRate(messages=100, bytes=1_000)


def test_a_burst_of_ten_seconds_worth_passes_and_then_the_rate_holds() -> None:
    pace = RateLimiter(RATE, 0.0)
    assert [pace.wait_after(0, 0.0) for _ in range(1_000)] == [0.0] * 1_000
    assert pace.wait_after(0, 0.0) == pytest.approx(0.01)
    assert pace.wait_after(0, 0.02) == pytest.approx(0.0)
    assert pace.wait_after(0, 100.0) == 0.0


def test_bytes_are_held_to_their_own_rate() -> None:
    pace = RateLimiter(RATE, 0.0)
    assert pace.wait_after(10_000, 0.0) == 0.0
    assert pace.wait_after(500, 0.0) == pytest.approx(0.5)


def test_mutations_are_counted_in_a_window_that_slides_and_refused_ones_are_not() -> None:
    limit = MutationLimit(4, 10.0)
    assert [limit.admits("g", 1, 100.0 + second) for second in range(6)] == [True] * 4 + [False] * 2
    assert limit.admits("other", 4, 105.0)
    assert not limit.admits("g", 1, 110.0)  # the window before still counts in full
    assert limit.admits("g", 2, 115.0)  # by half
    assert not limit.admits("g", 1, 115.0)
    assert limit.admits("g", 4, 140.0)


def test_groups_of_windows_long_past_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_WINDOWS", 100)
    limit = MutationLimit(1, 1.0)
    for number in range(1_000):
        assert limit.admits(f"g{number}", 1, float(number))
    assert len(limit._windows) <= 100
