"""The judge: states of the store in their order pass, everything else is told for what it is."""

from __future__ import annotations

import pytest

from changesource_sdk.adapter import Change, Column, Delete, Insert, Table, Update
from changesource_sdk.testing.conformance import Broken
from changesource_sdk.testing.conformance.history import WriteHistory
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.testing.folding import Key

ITEM = Table("item", [Column("id", int), Column("title", str)])


def item(number: int, title: str = "a") -> dict[str, object]:
    return {"id": number, "title": title}


class Consumer:
    """A consumer that is moved by hand, and the judge that watches it."""

    def __init__(self, *transactions: list[Change], start: int = 0) -> None:
        self.history = WriteHistory([ITEM], ["item"])
        for changes in transactions:
            self.history.record(changes)
        self.rows: dict[Key, dict[str, object]] = {}
        self.judge = Judge(self.history, start)

    def put(self, *rows: dict[str, object]) -> None:
        """A transaction of these rows."""
        for row in rows:
            self.rows[(row["id"],)] = row
        self._apply({("item", (row["id"],)) for row in rows})

    def remove(self, number: int) -> None:
        """A transaction that deletes a row."""
        del self.rows[(number,)]
        self._apply({("item", (number,))})

    def _apply(self, touched: set[tuple[str, Key]]) -> None:
        self.judge.transaction({"item": self.rows}, touched, "this transaction")


INSERTS: list[list[Change]] = [[Insert("item", item(number))] for number in (1, 2, 3)]


def test_states_in_their_order_pass() -> None:
    consumer = Consumer(*INSERTS)
    for number in (1, 2, 3):
        consumer.put(item(number))
        assert consumer.judge.reached == number
    assert consumer.judge.is_caught_up


def test_merged_transactions_pass() -> None:
    consumer = Consumer(*INSERTS)
    consumer.put(item(1), item(2), item(3))
    assert consumer.judge.is_caught_up


def test_a_lost_change_is_named_when_the_next_comes() -> None:
    consumer = Consumer(*INSERTS)
    consumer.put(item(1))
    with pytest.raises(Broken, match=r"lost.* this transaction is Insert\(item, 3\).*while Insert\(item, 2\)"):
        consumer.put(item(3))


def test_half_a_transaction_is_torn() -> None:
    consumer = Consumer([Insert("item", item(1)), Insert("item", item(2))])
    with pytest.raises(Broken, match=r"torn: this transaction has a part of .* row 2 of item is missing"):
        consumer.put(item(1))


def test_an_old_change_that_comes_again_came_twice() -> None:
    consumer = Consumer([Insert("item", item(1))], [Update("item", item(1, "b"))], [Insert("item", item(2))])
    consumer.put(item(1))
    consumer.put(item(1, "b"))
    with pytest.raises(Broken, match=r"came twice: this transaction is Insert\(item, 1\) again, transaction 1"):
        consumer.put(item(1))


def test_a_change_beyond_what_was_written_is_no_change_of_the_store() -> None:
    consumer = Consumer([Insert("item", item(1))], start=0)
    consumer.put(item(1))
    with pytest.raises(Broken, match=r"twice, or was never made: .* touches row 9 of item"):
        consumer.put(item(9))


def test_a_wrong_value_is_told_with_its_column() -> None:
    consumer = Consumer([Insert("item", item(1))])
    with pytest.raises(Broken, match=r"row 1 of item: column title is 'x' and should be 'a'"):
        consumer.put(item(1, "x"))


def test_a_key_change_without_the_old_key_is_told_as_such() -> None:
    consumer = Consumer([Insert("item", item(1))], [Update("item", item(5), old_key={"id": 1})])
    consumer.put(item(1))
    with pytest.raises(Broken, match=r"row 1 of item is there but should not be.*give the Update its old_key"):
        consumer.put(item(5))


def test_a_delete_that_never_came_is_told_as_such() -> None:
    consumer = Consumer([Insert("item", item(1))], [Delete("item", {"id": 1})])
    consumer.put(item(1))
    assert not consumer.judge.is_caught_up
    assert "yield a Delete" in consumer.judge.missing()


def test_a_deleted_row_passes() -> None:
    consumer = Consumer([Insert("item", item(1))], [Delete("item", {"id": 1})])
    consumer.put(item(1))
    consumer.remove(1)
    assert consumer.judge.is_caught_up


def test_a_transaction_that_changes_nothing_is_allowed_if_one_was_written() -> None:
    consumer = Consumer([Insert("item", item(1))], [Update("item", item(1))], [Insert("item", item(2))])
    consumer.put(item(1))
    consumer.put(item(1))
    assert consumer.judge.reached == 2


def test_a_snapshot_of_different_moments_is_inconsistent() -> None:
    history = Consumer(*INSERTS).history
    judge = Judge(history)
    with pytest.raises(Broken, match=r"no state that the store was ever in"):
        judge.snapshot({"item": {(1,): item(1), (3,): item(3)}})
    judge.snapshot({"item": {(1,): item(1), (2,): item(2)}})
    assert judge.reached == 2
