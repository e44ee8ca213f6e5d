"""(b) The most memory the endpoint ever holds while it streams a large snapshot to a consumer slower than itself."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.endpoint.session import session
from tests.support.fakes.raw_consumer import RawConsumer

TARGET_BYTES = 200_000_000
PAUSE_SECONDS = 0.01
STALL_SECONDS = 3.0


def measure(*, rows: int) -> dict[str, Any]:
    """Read a little, pause, and once stop altogether for some seconds: back-pressure must reach the spool."""
    with session(rows=rows) as served:
        process = served.endpoint.process
        idle = process.peak_memory()
        begun = time.perf_counter()
        with RawConsumer(served.url, timeout=600) as consumer:
            time.sleep(STALL_SECONDS)
            while not consumer.counted.commits:
                consumer.receive()
                time.sleep(PAUSE_SECONDS)
            counted = consumer.counted
        taken = time.perf_counter() - begun
        peak = process.peak_memory()
    return {
        "rows": rows,
        "frames": counted.frames,
        "streamedBytes": counted.size,
        "seconds": round(taken, 1),
        "idleBytes": idle,
        "peakBytes": peak,
        "met": peak < TARGET_BYTES,
    }
