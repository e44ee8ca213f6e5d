"""(d) Many consumers at once: each gets every byte, while each change is encoded once.

Encoded once is shown two ways: the pipeline's own count of encoded changes, and the endpoint's processor time,
which must grow by the cost of writing to sockets only.
"""

from __future__ import annotations

import os
import selectors
import time
from pathlib import Path
from typing import Any

from benchmarks.endpoint.session import Session, session
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.waiting import until

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def measure(*, consumers: int, transactions: int, size: int) -> dict[str, Any]:
    plan = f"{size}x{transactions},{size}x{transactions}"
    with session(rows=1000, plan=plan) as served:
        one = _round(served, 1, transactions)
        many = _round(served, consumers, 2 * transactions)
        encoded = _encoded_changes(served, 2 * size * transactions)
    return {
        "consumers": consumers,
        "changes": size * transactions,
        "one": one,
        "many": many,
        "encodedPerChange": encoded / (2 * size * transactions),
        "met": encoded == 2 * size * transactions and many["identical"],
    }


def _round(served: Session, consumers: int, end: int) -> dict[str, Any]:
    """Release transactions up to `end` to this many waiting consumers."""
    version = str(served.endpoint.status()["log"]["snapshot"])
    watermark, position = served.head(), served.position()
    group = [RawConsumer(served.url, last_watermark=watermark, replica_version=version) for _ in range(consumers)]
    cpu, begun = _cpu_seconds(served.endpoint.process.pid), time.perf_counter()
    served.release(end)
    _receive_all(group, end - position)
    taken = time.perf_counter() - begun
    cpu = _cpu_seconds(served.endpoint.process.pid) - cpu
    frames = sum(consumer.counted.frames for consumer in group)
    identical = len({consumer.counted.commit for consumer in group}) == 1
    for consumer in group:
        consumer.close()
    return {
        "frames": frames,
        "framesPerSecond": round(frames / taken),
        "endpointCpuMicrosPerFrame": round(cpu * 1e6 / frames, 3),
        "identical": identical,
    }


def _receive_all(group: list[RawConsumer], commits: int) -> None:
    with selectors.DefaultSelector() as selector:
        for consumer in group:
            selector.register(consumer, selectors.EVENT_READ, consumer)
        waiting = set(group)
        while waiting:
            for key, _ in selector.select(60):
                consumer = key.data
                assert consumer.receive(), "the endpoint closed a stream"
                if consumer.counted.commits >= commits:
                    waiting.discard(consumer)
                    selector.unregister(consumer)


def _encoded_changes(served: Session, expected: int) -> int:
    """The pipeline's count of changes it encoded, once its report is as new as the stream."""

    def count() -> int:
        return int(served.endpoint.status()["stages"]["pipeline"]["changes"])

    until(lambda: count() >= expected, "the pipeline's report")
    return count()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
