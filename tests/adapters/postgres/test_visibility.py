"""Which transactions a snapshot has seen."""

import pytest

from adapters.postgres.visibility import Horizon


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
