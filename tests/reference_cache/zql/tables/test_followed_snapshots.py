"""Moving a followed table from snapshot to snapshot while a replicator goes on writing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from reference_cache.replica.snapshotter import hold_snapshot, release_snapshot
from reference_cache.zql.ivm.change import Node, add
from reference_cache.zql.ivm.operator import EVERYTHING
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.schema import table
from reference_cache.zql.tables.followed import FollowedTable

ITEM = table("item", {"id": "number"})


def replica(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS item (id PRIMARY KEY)")
    return connection


def ids(source: Source) -> list[int]:
    reader = source.connect((("id", "asc"),))
    found = [node.row[0] for node in reader.fetch(EVERYTHING) if isinstance(node, Node)]
    reader.destroy()
    return found


def test_a_held_snapshot_does_not_see_what_is_committed_before_its_first_use(tmp_path: Path) -> None:
    replicator, reader = replica(tmp_path / "db"), replica(tmp_path / "db")
    hold_snapshot(reader)
    replicator.execute("INSERT INTO item VALUES (1)")
    assert ids(Source(FollowedTable(reader, ITEM))) == []
    release_snapshot(reader)
    assert ids(Source(FollowedTable(reader, ITEM))) == [1]


def test_two_connections_take_turns(tmp_path: Path) -> None:
    replicator, before, after = (replica(tmp_path / "db") for _ in range(3))
    hold_snapshot(before)
    store = FollowedTable(before, ITEM)
    source = Source(store)
    for number in range(1, 4):
        replicator.execute("INSERT INTO item VALUES (?)", (number,))
        hold_snapshot(after)
        replicator.execute("INSERT INTO item VALUES (?)", (number + 100,))
        replicator.execute("DELETE FROM item WHERE id = ?", (number + 100,))
        source.push(add((number,)))
        assert ids(source) == list(range(1, number + 1))
        store.advance(after)
        release_snapshot(before)
        before, after = after, before
        assert ids(source) == list(range(1, number + 1))
