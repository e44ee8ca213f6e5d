"""How fast a cache takes data in: rows of an initial sync, and changes of transactions of several sizes.

Transactions are committed while the cache is frozen, so that they wait in the endpoint's log; the clock runs from its
thaw until they are in its replica. So neither the store nor the pipeline is part of the figure.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.cache.caches import running
from benchmarks.cache.comparison import compared
from benchmarks.cache.session import session

TARGET = 5.0


def initial_sync(*, rows: int) -> dict[str, Any]:
    """Rows per second."""
    rates = {}
    with session(rows=rows) as served:
        for name in ("official", "ours"):
            with running(name, served.url, served.folder) as cache:
                rates[name] = rows / cache.initial_seconds
    return {"rows": rows, **compared(rates, at_least=TARGET)}


def live(*, plan: dict[int, int]) -> list[dict[str, Any]]:
    """Changes per second, by size of transaction; `plan` says how many of each."""
    return [_of_size(size, count) for size, count in plan.items()]


def _of_size(size: int, count: int) -> dict[str, Any]:
    rates = {}
    with session(rows=1000, size=size) as served:
        for name in ("official", "ours"):
            with running(name, served.url, served.folder) as cache:
                cache.freeze()
                served.commit(count)
                last = served.wait_until_logged()
                begun = time.perf_counter()
                cache.thaw()
                cache.wait_for_watermark(last)
                rates[name] = size * count / (time.perf_counter() - begun)
    return {"size": size, "count": count, **compared(rates, at_least=TARGET)}
