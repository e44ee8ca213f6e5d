"""Limits per address: open connections, and new ones per second. Pure, except for the clock.

The defaults are far above what caches need: a refused one reconnects every 25 ms, which is 40 a second, and several may
share the address of a proxy. They keep one host from taking all file descriptors, or the whole event loop with
handshakes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Literal

Excess = Literal["connections", "rate"]

#: Addresses whose rate is remembered; the one that connected longest ago is dropped first.
REMEMBERED = 10_000
#: How many seconds' worth of connections may come in one burst.
BURST_SECONDS = 2.0


@dataclass(slots=True)
class _Bucket:
    """A token bucket: the connections that an address may open, as of the time `at`."""

    # Both are written by `AddressLimits._take`.
    left: float
    at: float


class AddressLimits:
    """Counts per address. Invariant: `_open` has exactly the addresses with open connections."""

    def __init__(self, connections: int, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A limit of 0 means no limit."""
        self._connections = connections
        self._per_second = per_second
        self._clock = clock
        # Address -> its open connections; written by `enter` and `leave`.
        self._open: dict[str, int] = {}
        # By address, the one that connected last at the end; written by `_take`.
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def enter(self, host: str) -> Excess | None:
        """Count a new connection; returns the limit that it would exceed instead, if any."""
        address = _network(host)
        if self._per_second and not self._take(address):
            return "rate"
        if self._connections and self._open.get(address, 0) >= self._connections:
            return "connections"
        self._open[address] = self._open.get(address, 0) + 1
        return None

    def leave(self, host: str) -> None:
        """Stop counting a closed connection."""
        address = _network(host)
        left = self._open.pop(address) - 1
        if left:
            self._open[address] = left

    def _take(self, address: str) -> bool:
        now, most = self._clock(), max(1.0, self._per_second * BURST_SECONDS)
        bucket = self._buckets.setdefault(address, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.at) * self._per_second)
        bucket.at = now
        self._buckets.move_to_end(address)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True


def _network(host: str) -> str:
    """What counts as one address: an IPv4 address, or an IPv6 /64, in which one host can use any address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or IPv6Network((int(address), 64), strict=False))
    return str(address)
