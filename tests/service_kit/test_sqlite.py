"""SQLite connections of every part of the project: autocommit, and files that must exist are not made."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from service_kit.sqlite import connect, quoted, use_wal

AWKWARD = "it's 100% #1?&x=ä.db"


def test_a_file_is_made_only_without_a_mode(tmp_path: Path) -> None:
    path = tmp_path / AWKWARD
    with pytest.raises(sqlite3.OperationalError):
        connect(path, mode="rw")
    with closing(connect(path)) as made:
        made.execute("CREATE TABLE t (a)")
        assert not made.in_transaction
    with closing(connect(path, mode="ro")) as reader:
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("INSERT INTO t VALUES (1)")
    assert [each.name for each in tmp_path.iterdir()] == [AWKWARD]


@pytest.mark.parametrize("one_thread", [False, True])
def test_other_threads_may_use_a_connection_unless_it_is_for_one(one_thread: bool) -> None:
    refused: list[Exception] = []

    def use() -> None:
        try:
            connection.execute("SELECT 1")
        except sqlite3.ProgrammingError as error:
            refused.append(error)

    with closing(connect(":memory:", one_thread=one_thread)) as connection:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert bool(refused) == one_thread


def test_wal_with_the_durability_that_was_chosen(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "db")) as connection:
        for synchronous, number in (("FULL", 2), ("NORMAL", 1)):
            use_wal(connection, synchronous)  # type: ignore[arg-type]
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (number,)


@pytest.mark.parametrize("name", ["a", 'a"b', "a b", "select", '""', "ä"])
def test_any_name_can_be_quoted(name: str) -> None:
    with closing(connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE {quoted(name)} (a)")
        assert connection.execute("SELECT name FROM sqlite_schema").fetchone() == (name,)
