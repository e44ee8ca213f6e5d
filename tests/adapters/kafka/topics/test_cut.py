"""The cut tears no transaction, whatever interleaving of records and ENDs it meets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kafka.topics.cut import Ended, RecordGroups, find_cut, plain_cut

P0, P1 = ("a", 0), ("b", 0)
Record = tuple[tuple[str, int], int, str]


def shares(*records: Record) -> RecordGroups:
    """The records in this order, each with a place of its own in its transaction."""
    found = RecordGroups()
    for order, record in enumerate(records):
        found.add(*record, order)
    return found


def test_without_transactions_the_tail_starts_at_the_ends() -> None:
    cut = plain_cut({P0: 5, P1: 7})
    assert cut.starts == cut.ends == {P0: 5, P1: 7}


def test_a_transaction_without_end_is_left_to_the_tail() -> None:
    seen = shares((P0, 0, "1"), (P0, 1, "2"), (P1, 0, "2"))
    cut = find_cut({P0: 2, P1: 2}, 3, [Ended("1", 1, 1)], seen)
    assert cut.starts == {P0: 1, P1: 0}
    assert (cut.transactions_end, cut.ended_from, cut.finished) == (3, 3, frozenset())


def test_finished_records_behind_the_start_of_the_tail_are_named() -> None:
    seen = shares((P0, 0, "1"), (P0, 1, "2"))
    cut = find_cut({P0: 2, P1: 0}, 3, [Ended("2", 2, 1)], seen)
    assert (cut.starts[P0], cut.finished, cut.ended_from) == (0, frozenset({"2"}), 2)


def test_an_end_whose_records_are_not_all_there_moves_the_cut_before_it() -> None:
    seen = shares((P0, 0, "1"), (P0, 1, "2"))
    cut = find_cut({P0: 2, P1: 0}, 4, [Ended("1", 1, 2), Ended("2", 3, 1)], seen)
    assert (cut.transactions_end, cut.starts[P0], cut.finished) == (1, 0, frozenset())


def test_a_record_that_was_delivered_twice_does_not_stand_for_one_that_is_missing() -> None:
    seen = shares((P0, 0, "1"))
    seen.add(P0, 1, "1", 0)
    cut = find_cut({P0: 2, P1: 0}, 2, [Ended("1", 1, 2)], seen)
    assert (cut.starts[P0], cut.transactions_end) == (0, 1)
    seen.add(P0, 2, "1", 1)
    whole = find_cut({P0: 3, P1: 0}, 2, [Ended("1", 1, 2)], seen)
    assert (whole.starts[P0], whole.transactions_end) == (3, 2)


def test_records_of_one_that_is_known_to_be_complete_are_not_counted() -> None:
    cut = find_cut({P0: 1, P1: 0}, 4, [Ended("1", 1, 99)], shares((P0, 0, "1")), complete={"1"})
    assert (cut.transactions_end, cut.starts[P0]) == (4, 1)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[str, int]], list[str], dict[tuple[str, int], int], int]:
    """Records (transaction, partition) in order, transactions in the order of their ENDs, ends, a place among ENDs."""
    records = draw(st.lists(st.tuples(st.sampled_from("ABCDE"), st.integers(0, 2)), max_size=30))
    order = draw(st.permutations(sorted({name for name, _ in records})))
    sizes = {("t", number): sum(place == number for _, place in records) for number in range(3)}
    ends = {place: draw(st.integers(0, size)) for place, size in sizes.items()}
    return records, order, ends, draw(st.integers(0, len(order)))


@settings(deadline=None)
@given(histories())
def test_snapshot_and_tail_share_transactions_whole(
    history: tuple[list[tuple[str, int]], list[str], dict[tuple[str, int], int], int],
) -> None:
    records, order, ends, told = history
    placed: list[Record] = []
    following = dict.fromkeys(ends, 0)
    for name, number in records:
        place = ("t", number)
        placed.append((place, following[place], name))
        following[place] += 1
    ended = [
        Ended(name, offset, sum(transaction == name for transaction, _ in records))
        for offset, name in enumerate(order[:told])
    ]
    seen = [record for record in placed if record[1] < ends[record[0]]]
    cut = find_cut(ends, told, ended, shares(*seen))

    snapshot = [r for r in seen if r[1] < cut.starts[r[0]] or r[2] in cut.finished]
    tail = [r for r in placed if r[1] >= cut.starts[r[0]] and r[2] not in cut.finished]
    assert sorted(snapshot + tail) == sorted(placed)
    assert not {r[2] for r in snapshot} & {r[2] for r in tail}
    assert all(order.index(r[2]) < cut.transactions_end for r in snapshot)
    assert all(order.index(name) >= cut.ended_from for name in cut.finished)
