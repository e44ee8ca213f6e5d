"""The replica as a file: whose it is, how it comes into place, and that it does not grow without end."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from reference_cache.replica.errors import UnusableReplica
from reference_cache.replica.replica import open_replica
from reference_cache.replica.schema import read_schema
from reference_cache.replica.snapshotter import hold_snapshot, release_snapshot
from reference_cache.replica.stored_catalog import Origin
from reference_cache.replica.wal import Wal
from reference_cache.replica.writing.initial_load import load_new, load_over
from reference_cache.replica.writing.writer import open_writer
from reference_cache.replicator.row_frames import RowFrames
from tests.reference_cache.replica.conftest import ORIGIN, MakeReplica
from tests.reference_cache.sources import insert, snapshot
from tests.support.fakes.tiny_source import ITEM


def test_there_is_no_replica_before_its_load_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "replica.db"
    load = load_new(path, ORIGIN)
    load.begin("01", "p")
    with pytest.raises(FileNotFoundError):
        open_replica(path)
    load.abandon()
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_load_over_a_replica_leaves_it_as_it_was(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    load = load_over(made.path, ORIGIN)
    load.begin("05", "p")
    load.abandon()
    assert made.rows() == [(1, "one")]
    made.commit("02", insert(2, "two"))
    assert open_replica(made.path).state().version == "02"


@pytest.mark.parametrize("columns", [("id", "name"), ("name", "id")], ids=["in bulk", "one by one"])
def test_every_row_of_a_load_is_counted(tmp_path: Path, columns: tuple[str, str]) -> None:
    load = load_new(tmp_path / "replica.db", ORIGIN)
    load.begin("01", "p")
    row = {"id": 1, "name": "one"}
    change = ["data", {"tag": "insert", "relation": ITEM, "new": {name: row[name] for name in columns}}]
    messages = snapshot("01", change, change, change)
    RowFrames().apply_all([json.dumps(message).encode() for message in messages[1:-1]], load)
    assert load.loaded == len([message for message in messages if message[1]["tag"] == "insert"])
    load.abandon()


@pytest.mark.parametrize("origin", [Origin("other"), Origin("zero", 1), Origin("zero", 0, frozenset({"p"}))])
def test_a_replica_of_another_app_shard_or_publication_is_refused(replica: MakeReplica, origin: Origin) -> None:
    made = replica()
    with pytest.raises(UnusableReplica, match="was made for"):
        open_writer(made.path, origin)


def test_a_database_that_is_no_replica_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE precious (id)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UnusableReplica):
        open_replica(path)
    with pytest.raises(UnusableReplica):
        open_writer(path, ORIGIN)
    assert path.read_bytes() == before


def test_a_reopened_replica_has_its_schema_and_goes_on(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"), columns={"size": "int4"})
    before = read_schema(made.connect())
    made.writer.close()
    made.writer = open_writer(made.path, ORIGIN)
    made.commit("02", insert(2, "two", size=5))
    assert read_schema(made.connect()) == before
    assert made.log("01", "02") == [("02", "item", "Add", (2, "two", 5, "02"))]


def test_the_write_ahead_log_shrinks_once_readers_took_a_new_snapshot(replica: MakeReplica) -> None:
    made = replica()
    wal = Wal(made.path, large=1 << 16)
    first, second = made.connect(), made.connect()
    hold_snapshot(first)
    made.commit("02", *(insert(key, "x" * 500) for key in range(500)))
    assert wal.shrink(made.writer.connection), "a reader needs what is in the log"
    hold_snapshot(second)
    release_snapshot(first)
    assert wal.shrink(made.writer.connection), "all of it is moved, but the reader began before that"
    hold_snapshot(first)
    release_snapshot(second)
    assert not wal.shrink(made.writer.connection)
    assert wal.size == 0
