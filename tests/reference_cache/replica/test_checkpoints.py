"""Checkpoints while the writer works: the WAL is moved into the database, and neither side waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from reference_cache.replica.checkpoints import Checkpoints, leave_to_others

ROWS = 500


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    leave_to_others(connection)
    connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT)")
    yield connection
    connection.close()


def write(connection: sqlite3.Connection, rows: int = ROWS) -> None:
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO item (body) VALUES (?)", [("x" * 1000,)] * rows)
    connection.execute("COMMIT")


def unmoved(connection: sqlite3.Connection) -> int:
    """Pages of the log that are not in the database, before this looks (and moves them)."""
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    moved = Path(path).stat().st_size
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return Path(path).stat().st_size - moved


def test_the_writer_leaves_its_log_alone(writer: sqlite3.Connection, tmp_path: Path) -> None:
    for _ in range(10):
        write(writer)
    assert (tmp_path / "data.db").stat().st_size < 10 * ROWS * 1000
    assert unmoved(writer) > 0


def test_written_pages_are_moved_and_the_wal_starts_from_its_beginning(
    writer: sqlite3.Connection, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path / "data.db", worth=ROWS)
    log = tmp_path / "data.db-wal"
    sizes = []
    for _ in range(6):
        write(writer)
        checkpoints.after_commit(writer)
        checkpoints.wait()
        sizes.append(log.stat().st_size)
    assert unmoved(writer) == 0
    assert max(sizes) < 2 * sizes[0], "each time the log was written from its beginning"


def test_little_is_not_worth_a_checkpoint(writer: sqlite3.Connection, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "data.db", worth=ROWS)
    write(writer, ROWS - 1)
    checkpoints.after_commit(writer)
    assert not checkpoints.is_under_way
    assert unmoved(writer) > 0


def test_a_writer_that_comes_after_another_has_its_own_count(writer: sqlite3.Connection, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "data.db", worth=ROWS)
    for _ in range(3):
        write(writer)
        checkpoints.after_commit(writer)
        checkpoints.wait()
    second = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    leave_to_others(second)
    write(second)
    checkpoints.after_commit(second)
    checkpoints.wait()
    assert unmoved(second) == 0
    second.close()


def test_a_reader_keeps_what_it_sees(writer: sqlite3.Connection, tmp_path: Path) -> None:
    reader = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    write(writer)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM item").fetchone() == (ROWS,)
    checkpoints = Checkpoints(tmp_path / "data.db", worth=ROWS)
    write(writer)
    checkpoints.after_commit(writer)
    checkpoints.wait()
    assert reader.execute("SELECT count(*) FROM item").fetchone() == (ROWS,)
    reader.close()


def test_a_failed_checkpoint_is_logged_and_writing_continues(
    writer: sqlite3.Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path / "other.db", worth=ROWS)
    write(writer)
    checkpoints.after_commit(writer)
    checkpoints.wait()
    assert "a checkpoint of" in caplog.text
    assert not (tmp_path / "other.db").exists()
    assert writer.execute("SELECT count(*) FROM item").fetchone() == (ROWS,)
