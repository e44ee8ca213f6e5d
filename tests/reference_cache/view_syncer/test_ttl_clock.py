"""The clock queries expire by."""

from __future__ import annotations

from reference_cache.view_syncer.ttl_clock import TtlClock


def test_the_clock_stops_while_no_client_is_connected() -> None:
    seconds = 0.0
    clock = TtlClock(500.0, lambda: seconds)
    seconds = 10.0
    assert clock.now() == 500.0
    clock.start()
    clock.start()
    seconds = 12.0
    assert clock.now() == 2500.0
    clock.stop()
    seconds = 99.0
    assert clock.now() == 2500.0
