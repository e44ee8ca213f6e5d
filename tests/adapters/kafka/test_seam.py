"""Snapshot and tail fit together under load: every transaction is whole at every point, and none is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.kafka import KafkaAdapter
from changesource_sdk.adapter import Delete, Insert, Snapshot, Transaction, Update
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.waiting import until
from tests.support.workloads.kafka_bank import Bank, Working

Tables = dict[str, dict[object, dict[str, object]]]
UNDER_LOAD = 40


def state_of(snapshot: Snapshot) -> Tables:
    tables: Tables = {"account": {}, "ledger": {}}
    for partition in snapshot.partitions:
        for row in partition.rows():
            assert row["id"] not in tables[partition.table], "a row in two partitions"
            tables[partition.table][row["id"]] = dict(row)
    return tables


def apply(tables: Tables, transaction: Transaction) -> None:
    for change in transaction.changes:
        match change:
            case Insert(table, row):
                assert row["id"] not in tables[table], f"{row} came twice"
                tables[table][row["id"]] = dict(row)
            case Update(table, row):
                tables[table][row["id"]] |= row
            case Delete(table, key):
                del tables[table][key["id"]]
            case _:
                raise AssertionError(f"not in this load: {change}")


@pytest.mark.parametrize("seed", [1, 2])
def test_every_transaction_is_whole_from_the_snapshot_on(kafka: KafkaBroker, seed: int) -> None:
    bank = Bank(kafka, seed)
    bank.open_accounts()
    adapter = KafkaAdapter(**bank.settings)

    def followed(changes: Iterator[Transaction], tables: Tables) -> None:
        apply(tables, next(changes))
        bank.assert_whole(tables["account"], tables["ledger"], f"after the snapshot, seed {seed}")

    with Working(bank, kafka, seed, pause_s=0.01):
        until(lambda: bank.moves > 10, "some moves")
        taken = adapter.snapshot()
        tables = state_of(taken)
        bank.assert_whole(tables["account"], tables["ledger"], f"in the snapshot, seed {seed}")
        changes = adapter.changes(taken.position)
        for _ in range(UNDER_LOAD):
            followed(changes, tables)
    while not bank.is_all_of(tables["account"], tables["ledger"]):
        followed(changes, tables)
    adapter.close()
    assert tables == {"account": bank.accounts, "ledger": bank.ledger}
