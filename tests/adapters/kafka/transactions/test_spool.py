"""What waits comes out by its place in the transaction, however much of it went to files."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from adapters.kafka.transactions.spool import Entry, Orders, TransactionSpool
from changesource_sdk.adapter import Insert


def an_entry(order: int) -> Entry:
    return order, ("items", 0, order), (Insert("t", {"id": order}),)


@given(st.lists(st.integers(0, 5_000)))
def test_a_set_of_places_says_what_is_new(numbers: list[int]) -> None:
    orders, known = Orders(), set[int]()
    for number in numbers:
        assert orders.add(number) == (number not in known)
        known.add(number)
    assert orders.count == len(known)


@given(st.permutations(range(40)), st.integers(0, 200))
def test_transactions_come_out_in_order_whatever_went_to_files(orders: list[int], limit: int) -> None:
    spool = TransactionSpool(limit)
    try:
        for order in orders:
            spool.put(f"T{order % 3}", an_entry(order), 10)
        for number in range(3):
            assert list(spool.take(f"T{number}")) == [an_entry(n) for n in range(number, 40, 3)]
        assert spool.files == 0
    finally:
        spool.close()


def test_a_file_goes_with_the_last_that_is_in_it(tmp_path: Path) -> None:
    spool = TransactionSpool(15, str(tmp_path))
    spool.put("kept", an_entry(1), 10)
    spool.put("taken", an_entry(2), 10)
    spool.put("forgotten", an_entry(3), 16)
    assert spool.files == 2
    spool.forget("forgotten")
    assert spool.files == 1
    assert list(spool.take("taken")) == [an_entry(2)]
    assert spool.files == 1
    assert list(spool.take("kept")) == [an_entry(1)]
    assert spool.files == 0
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_on_disk_by_what_was_never_taken(tmp_path: Path) -> None:
    spool = TransactionSpool(5, str(tmp_path))
    spool.put("T", an_entry(1), 10)
    assert len(list(tmp_path.rglob("*"))) == 2
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_transaction_nobody_put_anything_in_is_empty() -> None:
    spool = TransactionSpool()
    spool.forget("T")
    assert list(spool.take("T")) == []
