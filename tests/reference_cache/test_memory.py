"""Memory that was freed goes back to the system, and asking for that is bounded."""

from __future__ import annotations

import time

import pytest

from reference_cache import memory


def test_freed_blocks_that_are_scattered_are_given_back() -> None:
    reclaimer = memory.Reclaimer()
    blocks = [bytes(4000) for _ in range(50_000)]
    kept = blocks[::100]
    grown = memory.resident_bytes()
    assert reclaimer.is_due()
    blocks.clear()
    reclaimer.give_back()
    assert memory.resident_bytes() < grown - 100_000_000
    assert len(kept) == 500


def test_it_rests_and_asks_only_after_something_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(memory, "resident_bytes", lambda: 100)
    reclaimer = memory.Reclaimer()
    assert not reclaimer.is_due()
    reclaimer.freed()
    assert reclaimer.is_due()
    reclaimer.give_back()
    reclaimer.freed()
    assert not reclaimer.is_due(), "it rests"
    now += memory.REST_SECONDS
    assert reclaimer.is_due()
    reclaimer.give_back()
    now += memory.REST_SECONDS
    assert not reclaimer.is_due(), "nothing was freed"
