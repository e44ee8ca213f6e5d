"""A difference of a Parquet table beside the bare join that any difference needs, in turns in one run.

The bare join is what one would write by hand: the table, with a hash of its columns, fully joined by key with the
stored keys and hashes, and the rows counted whose hashes differ. Ours finds the same rows, checks that keys are unique,
and leaves the changed rows and the next state on disk.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from adapters.spark_tables.difference.compute import TableDifference, tuned
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from benchmarks.spark_tables.rows import batches, rows
from changesource_sdk.pipeline.spark.session import SparkSettings, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS, WARM_UP, CHANGED = 7, 2, 1000
RATIO = 1.5


def measure(*, rows: int) -> dict[str, Any]:
    """Both, several times in turns; medians count."""
    with tempfile.TemporaryDirectory(prefix="changesource-bench-") as name:
        before, after = Path(name) / "before", Path(name) / "after"
        _make(before, rows, changed=0)
        _make(after, rows, changed=CHANGED)
        session = tuned(start_session(SparkSettings("local[2]", {"spark.ui.enabled": "false"})))
        try:
            bare, ours = _in_turns(session, before, after, StateFolder(f"{name}/state"))
        finally:
            session.stop()
    ratio = statistics.median(ours) / statistics.median(bare)
    return {
        "rows": rows,
        "changed": CHANGED,
        "bareJoinS": [round(each, 3) for each in bare],
        "differenceS": [round(each, 3) for each in ours],
        "ratio": round(ratio, 2),
        "met": ratio <= RATIO,
    }


def _make(folder: Path, count: int, *, changed: int) -> None:
    folder.mkdir()
    for number, batch in enumerate(batches(count)):
        if number == 0 and changed:
            batch = pa.concat_tables([rows(0, changed, turn=1), batch.slice(changed)])
        pq.write_table(batch, folder / f"part-{number}.parquet")


def _in_turns(session: SparkSession, before: Path, after: Path, folder: StateFolder) -> tuple[list[float], list[float]]:
    difference = TableDifference(session, folder, "issue", ["id"])
    version = difference.remember(session.read.parquet(str(before)), None)
    stored = f"{folder.root}/bare"
    hashed = session.read.parquet(str(before)).selectExpr("id", f"{_hash(session, before)} AS h")
    hashed.write.parquet(stored)
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS + WARM_UP):
        bare.append(_seconds(lambda: _bare_join(session, after, stored)))
        ours.append(_seconds(lambda: _difference(session, after, difference, version)))
    return bare[WARM_UP:], ours[WARM_UP:]


def _hash(session: SparkSession, folder: Path) -> str:
    names = session.read.parquet(str(folder)).columns
    return f"xxhash64({', '.join(name for name in names if name != 'id')})"


def _bare_join(session: SparkSession, after: Path, stored: str) -> None:
    now = session.read.parquet(str(after)).selectExpr("*", f"{_hash(session, after)} AS hash")
    known = session.read.parquet(stored).withColumnRenamed("id", "known")
    joined = now.join(known, now["id"] == known["known"], "full_outer")
    found = len(joined.where("hash IS NULL OR h IS NULL OR hash <> h").collect())
    assert found == CHANGED, found


def _difference(session: SparkSession, after: Path, difference: TableDifference, version: StateVersion) -> None:
    found = difference.find(version, session.read.parquet(str(after)), None)
    assert found is not None
    assert found.updates == CHANGED


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
