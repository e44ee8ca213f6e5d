"""A snapshot is one state, cut into ranges that travel and can be read twice, and leaves nothing behind."""

import pickle
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from adapters.sqlite import snapshot as module
from adapters.sqlite.adapter import SqliteAdapter
from adapters.sqlite.snapshot import TableRange
from changesource_sdk.adapter import Row
from changesource_sdk.errors import AdapterError


def fill(db: sqlite3.Connection, shape: str, count: int = 25) -> None:
    db.execute(f"CREATE TABLE t {shape}")
    for number in range(count):
        db.execute("INSERT INTO t (id, part, v) VALUES (?, ?, ?)", (number * 7 % count, "ab"[number % 2], number / 3))


def ranges(adapter: SqliteAdapter) -> list[TableRange]:
    return [part for part in adapter.snapshot().partitions if isinstance(part, TableRange)]


def read(part: bytes) -> list[Row]:
    return list(pickle.loads(part).rows())


@pytest.mark.parametrize(
    "shape",
    [
        "(id INTEGER PRIMARY KEY, part TEXT, v REAL)",
        "(id TEXT, part TEXT, v REAL, PRIMARY KEY (part, id))",
        "(id INTEGER, part TEXT COLLATE NOCASE, v REAL, PRIMARY KEY (part DESC, id)) WITHOUT ROWID",
        '(id INTEGER, part TEXT, v REAL, rowid TEXT, "_rowid_" TEXT, oid TEXT, PRIMARY KEY (id, part))',
    ],
)
def test_ranges_together_are_the_table(
    db: sqlite3.Connection, path: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTITION_ROWS", 4)
    fill(db, shape)
    found = ranges(SqliteAdapter(path))
    assert len(found) == 7
    rows = [tuple(row.values()) for part in found for row in part.rows()]
    assert sorted(rows, key=repr) == sorted(db.execute("SELECT * FROM t").fetchall(), key=repr)
    assert max(len(list(part.rows())) for part in found) == 4


def test_ranges_are_read_by_other_processes_as_often_as_needed(
    db: sqlite3.Connection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTITION_ROWS", 10)
    fill(db, "(id INTEGER PRIMARY KEY, part TEXT, v REAL)")
    parts = [pickle.dumps(part) for part in ranges(SqliteAdapter(path))]
    with ProcessPoolExecutor(2) as pool:
        once, again = list(pool.map(read, parts)), list(pool.map(read, parts))
    assert once == again
    assert sum(map(len, once)) == 25


def test_a_snapshot_does_not_see_what_comes_later(db: sqlite3.Connection, path: str) -> None:
    fill(db, "(id INTEGER PRIMARY KEY, part TEXT, v REAL)", 3)
    snapshot = SqliteAdapter(path).snapshot()
    db.executescript("DELETE FROM t; ALTER TABLE t RENAME TO gone")
    assert [len(list(part.rows())) for part in snapshot.partitions] == [3]


def test_closing_removes_the_copy(db: sqlite3.Connection, path: str, tmp_path: Path) -> None:
    fill(db, "(id INTEGER PRIMARY KEY, part TEXT, v REAL)", 3)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    snapshot = SqliteAdapter(path, scratch=str(scratch)).snapshot()
    assert len(list(scratch.iterdir())) == 1
    assert snapshot.close is not None
    snapshot.close()
    assert list(scratch.iterdir()) == []


def test_a_failed_snapshot_leaves_nothing_behind(db: sqlite3.Connection, path: str, tmp_path: Path) -> None:
    db.executescript("CREATE TABLE t (id TEXT PRIMARY KEY); INSERT INTO t VALUES (NULL)")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(AdapterError, match="null-key"):
        SqliteAdapter(path, scratch=str(scratch)).snapshot()
    assert list(scratch.iterdir()) == []


def test_an_empty_database_is_a_snapshot_without_tables(db: sqlite3.Connection, path: str) -> None:
    snapshot = SqliteAdapter(path).snapshot()
    assert (snapshot.tables, list(snapshot.partitions)) == ((), [])
