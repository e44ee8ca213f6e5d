"""One address takes no more connections than its share; others do not notice."""

from __future__ import annotations

from changesource_sdk.endpoint.access.address_limits import BURST_SECONDS, REMEMBERED, AddressLimits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_open_connections_are_counted_per_address() -> None:
    limits = AddressLimits(2, 0)
    assert [limits.enter("10.0.0.1") for _ in range(3)] == [None, None, "connections"]
    assert limits.enter("10.0.0.2") is None
    limits.leave("10.0.0.1")
    assert limits.enter("10.0.0.1") is None


def test_an_ipv6_host_cannot_escape_by_changing_its_address() -> None:
    limits = AddressLimits(1, 0)
    assert limits.enter("2001:db8::1") is None
    assert limits.enter("2001:db8::ffff:2") == "connections"
    assert limits.enter("2001:db8:0:1::1") is None
    assert limits.enter("10.0.0.1") is None
    assert limits.enter("::ffff:10.0.0.1") == "connections", "the same IPv4 address"


def test_new_connections_are_limited_per_second() -> None:
    clock = Clock()
    limits = AddressLimits(0, 10, clock)
    at_once = int(10 * BURST_SECONDS)
    assert all(limits.enter("10.0.0.1") is None for _ in range(at_once))
    assert limits.enter("10.0.0.1") == "rate"
    assert limits.enter("10.0.0.2") is None
    clock.now += 0.5
    assert [limits.enter("10.0.0.1") for _ in range(6)] == [None] * 5 + ["rate"]


def test_the_retry_of_a_refused_cache_is_within_the_defaults() -> None:
    clock = Clock()
    limits = AddressLimits(1000, 1000.0, clock)
    for _ in range(40 * 60):  # a minute of ten caches behind one address, each back after 25 ms
        for _ in range(10):
            assert limits.enter("10.0.0.1") is None
            limits.leave("10.0.0.1")
        clock.now += 0.025


def test_memory_is_bounded_and_a_limit_of_zero_is_none() -> None:
    limits = AddressLimits(0, 1)
    for number in range(REMEMBERED + 100):
        limits.enter(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(limits._buckets) == REMEMBERED
    unlimited = AddressLimits(0, 0)
    assert all(unlimited.enter("10.0.0.1") is None for _ in range(5000))
