"""The snapshot of a topic: records per second into the spool, and the memory of the tasks that fold it.

Every fifth record is a later version of an earlier key, so there is something to fold. Memory is the most that any
Python process of the pipeline had resident, for a quarter of the records and for all: flat means that four times the
records need at most `FLAT` times the memory.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.kafka.topics import declared, fill, settings, topic
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing, command_line
from tests.support.waiting import until

FLAT = 1.25
LONGEST_S = 240
LOOK_EVERY_S = 0.5
MASTER = "local[2]"


def measure(*, records: int) -> dict[str, Any]:
    with topic() as (broker, name):
        _fill(broker, name, 0, records // 4)
        quarter = _take(broker, name, records // 4)
        _fill(broker, name, records // 4, records)
        whole = _take(broker, name, records)
    flat = whole["peakMB"] / quarter["peakMB"]
    return {"quarter": quarter, "whole": whole, "memoryTimes": round(flat, 2), "met": flat <= FLAT}


def _fill(broker: KafkaBroker, name: str, first: int, end: int) -> None:
    """So many records, the last fifth of them of keys that were written before."""
    new = first + (end - first) * 4 // 5
    fill(broker, name, first, new)
    fill(broker, name, first, first + (end - new))


def _take(broker: KafkaBroker, name: str, records: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="changesource-bench-") as folder:
        tables = Path(folder) / "tables.toml"
        tables.write_text(declared())
        given = settings(broker, name, str(tables))
        with SparkServing("kafka", given, Path(folder) / "state", master=MASTER) as endpoint:
            endpoint.launch()
            # A small one may be over before it is seen.
            until(lambda: endpoint.stage().get("state") in ("snapshot", "tailing"), "the plan", seconds=SPARK_SECONDS)
            begun, peak = time.perf_counter(), 0
            while not endpoint.ready():
                peak = max(peak, *map(_peak, endpoint.pipeline_pids()), 0)
                assert time.perf_counter() - begun < LONGEST_S, f"no end of the snapshot:\n{endpoint.process.tail()}"
                time.sleep(LOOK_EVERY_S)
            seconds = time.perf_counter() - begun
    return {"records": records, "perSecond": round(records / seconds), "peakMB": round(peak / 2**20)}


def _peak(pid: int) -> int:
    """The most memory a Python process ever had resident; nothing of Java's, which fills what it is given."""
    if b"python" not in command_line(pid).split(b"\0")[0]:
        return 0
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)
