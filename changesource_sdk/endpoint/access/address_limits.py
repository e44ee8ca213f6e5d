"""How much of an endpoint one address may take: open connections, and new ones per second. Pure but for the clock.

The defaults are far above what caches need: one that is refused comes back every 25 ms, which is 40 a second, and
several may share the address of a proxy. They stop one host from taking every file descriptor, or all the time of the
event loop with handshakes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Literal

Excess = Literal["connections", "rate"]

#: Addresses whose rate is remembered; the one heard of longest ago is forgotten first.
REMEMBERED = 10_000
#: Seconds of the rate that may come at once.
BURST_SECONDS = 2.0


@dataclass(slots=True)
class _Bucket:
    """Connections an address may still open now, and when that was worked out."""

    left: float
    at: float


class AddressLimits:
    """Counts per address. Invariant: `_open` has exactly the addresses with open connections."""

    def __init__(self, connections: int, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A limit of 0 is none."""
        self._connections = connections
        self._per_second = per_second
        self._clock = clock
        self._open: dict[str, int] = {}  # address -> its open connections
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()  # by address, the one heard of last at the end

    def enter(self, host: str) -> Excess | None:
        """Count a new connection; the limit it would exceed instead."""
        address = _network(host)
        if self._per_second and not self._take(address):
            return "rate"
        if self._connections and self._open.get(address, 0) >= self._connections:
            return "connections"
        self._open[address] = self._open.get(address, 0) + 1
        return None

    def leave(self, host: str) -> None:
        """A connection that was counted is closed."""
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
    """What counts as one address: an IPv4 address, or the /64 that one IPv6 host can pick addresses from."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or IPv6Network((int(address), 64), strict=False))
    return str(address)
