"""Snapshot and tail meet without a gap while another process writes, and no transaction is ever seen in part."""

import sqlite3

import pytest

from adapters.sqlite import SqliteAdapter
from tests.adapters.sqlite.under_load import transfers
from tests.adapters.sqlite.under_load.consumer import Consumer, assert_equal


def total(consumer: Consumer) -> int:
    return sum(int(str(row["balance"])) for row in consumer.tables["accounts"].rows.values())


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("seed", range(3))
def test_the_seam_is_exact_under_a_concurrent_writer(path: str, journal: str, seed: int) -> None:
    transfers.create(path, journal)
    adapter, early = SqliteAdapter(path), SqliteAdapter(path)
    first = early.changes(early.snapshot().position)
    with transfers.Writer(path, seed) as writer:
        next(first)  # the writer is at work
        first.close()
        snapshot = adapter.snapshot()
        position, consumer = snapshot.position, Consumer.of(snapshot)
        batches = 0
        for transaction in adapter.changes(position):
            assert total(consumer) == transfers.TOTAL
            consumer.apply(transaction.changes)
            batches += 1
            if batches == 30:
                writer.finish()
            if consumer.tables["finished"].rows:
                break
    assert batches > 30
    assert total(consumer) == transfers.TOTAL
    with sqlite3.connect(path) as db:
        assert_equal(consumer, db)
