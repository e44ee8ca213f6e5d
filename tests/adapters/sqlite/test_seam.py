"""Snapshot and tail meet without a gap while another process writes, and no transaction is ever seen in part."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.sqlite import SqliteAdapter
from tests.adapters.sqlite import transfers
from tests.adapters.sqlite.consumer import Consumer, assert_equal

ROOT = Path(__file__).resolve().parents[3]


def total(consumer: Consumer) -> int:
    return sum(int(str(row["balance"])) for row in consumer.tables["accounts"].rows.values())


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("seed", range(3))
def test_the_seam_is_exact_under_a_concurrent_writer(path: str, journal: str, seed: int) -> None:
    transfers.create(path, journal)
    adapter, early = SqliteAdapter(path), SqliteAdapter(path)
    early.tables()
    writer = subprocess.Popen([sys.executable, transfers.__file__, path, "300", str(seed)], cwd=ROOT)
    try:
        for _ in early.changes(early.snapshot().position):
            break  # the writer is at work
        snapshot = adapter.snapshot()
        position, consumer = snapshot.position, Consumer.of(snapshot)
        batches = 0
        for transaction in adapter.changes(position):
            assert total(consumer) == transfers.TOTAL
            consumer.apply(transaction.changes)
            batches += 1
            if consumer.tables["finished"].rows:
                break
        assert writer.wait(60) == 0
    finally:
        writer.kill()
        writer.wait()
    assert batches > 0
    assert total(consumer) == transfers.TOTAL
    with sqlite3.connect(path) as db:
        assert_equal(consumer, db)
