"""(c) How long a change of an idle store takes until its frame is at the consumer.

Counted from the moment the adapter hands the transaction over, so validation, encoding, the durable append, the
poke, the read and the send are all in it.
"""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks.endpoint.session import session
from tests.support.fakes.raw_consumer import RawConsumer

TARGET_P50_MS, TARGET_P99_MS = 2.0, 10.0
PACE_SECONDS = 0.02


def measure(*, transactions: int) -> dict[str, Any]:
    with session(rows=1000, plan=f"1x{transactions}", pace=PACE_SECONDS) as served:
        version = served.head()
        with RawConsumer(served.url, last_watermark=version) as consumer:
            served.release(transactions)
            delays = [_delay(consumer, number) for number in range(1, transactions + 1)]
    delays.sort()
    p50, p99 = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
    return {
        "transactions": transactions,
        "paceMs": PACE_SECONDS * 1000,
        "p50Ms": round(p50, 2),
        "p99Ms": round(p99, 2),
        "maxMs": round(delays[-1], 2),
        "met": p50 < TARGET_P50_MS and p99 < TARGET_P99_MS,
    }


def _delay(consumer: RawConsumer, number: int) -> float:
    """Milliseconds that the next transaction was under way."""
    counted = consumer.receive_commits(number)
    arrived = time.time() * 1000
    committed: float = json.loads(counted.commit)[1]["commitTimeMs"]
    return arrived - committed
