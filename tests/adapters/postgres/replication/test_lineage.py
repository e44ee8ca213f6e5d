"""A server that does not have the history that was read is told apart."""

from __future__ import annotations

import pytest

from adapters.postgres.replication.lineage import timeline_ends
from changesource_sdk.errors import ResyncRequired
from protocol.watermark import from_int
from tests.adapters.postgres.conftest import MakeFollower

HISTORY = """1\t0/3000148\tno recovery target specified

2\t1/A0\tno recovery target specified
"""


def test_a_history_tells_where_timelines_were_left() -> None:
    assert dict(timeline_ends(HISTORY)) == {1: 0x3000148, 2: 0x1000000A0}


def test_another_server_asks_for_a_new_snapshot(following: MakeFollower) -> None:
    follower = following("CREATE TABLE t (id int PRIMARY KEY)")
    follower.catch_up()
    follower.close()
    follower.run("UPDATE changesource_state.pipelines SET server = '1234567890/1'")
    follower._open()
    with pytest.raises(ResyncRequired, match="another server"):
        follower._next()


def test_watermarks_grow_though_the_server_went_back_in_time(following: MakeFollower) -> None:
    follower = following("CREATE TABLE t (id int PRIMARY KEY)")
    follower.catch_up()
    follower.close()
    follower.position += 1 << 40
    highest = from_int(follower.position)
    follower._open()
    with pytest.raises(ResyncRequired, match="back in time"):
        follower._next()
    follower.begin()
    assert follower.watermark > highest
    follower.run("INSERT INTO t VALUES (1)")
    follower.catch_up()
    follower.restart()
    follower.run("INSERT INTO t VALUES (2)")
    follower.catch_up()
    follower.assert_same()
