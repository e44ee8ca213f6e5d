"""Which transactions a snapshot has seen."""

import pytest

from adapters.postgres.replication.visibility import Horizon, Redefinition


@pytest.mark.parametrize(
    ("snapshot", "xid", "seen"),
    [
        ("10:20:", 19, True),
        ("10:20:", 20, False),
        ("10:20:12,15", 12, False),
        ("10:20:12,15", 13, True),
        (f"{2**32 + 5}:{2**32 + 10}:", 2**32 - 1, True),
        (f"{2**32 + 5}:{2**32 + 10}:", 9, True),
        (f"{2**32 + 5}:{2**32 + 10}:", 10, False),
        (f"{2**32 - 6}:{2**32 - 5}:", 3, False),
    ],
)
def test_a_snapshot_has_seen(snapshot: str, xid: int, seen: bool) -> None:
    assert Horizon.parse(snapshot, 0).has_seen(xid) is seen


def test_a_move_is_remembered_until_all_who_may_not_have_seen_it_are_over() -> None:
    move = Redefinition(12)
    assert move.after(Horizon.parse("12:20:12,15", 0)) == move
    seen = move.after(Horizon.parse("15:20:15,17", 0))
    assert seen == Redefinition(12, frozenset({15, 17}))
    later = seen.after(Horizon.parse("17:25:17,22", 0))
    assert later == Redefinition(12, frozenset({17}))
    assert later.after(Horizon.parse("22:26:22", 0)) is None
