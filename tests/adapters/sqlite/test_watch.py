"""Writes to the database wake a reader at once, whatever its longest pause; where it hears nothing, looking does."""

import sqlite3
import sys
import threading
import time
from pathlib import Path

import pytest

from adapters.sqlite import SqliteAdapter, watch
from adapters.sqlite.watch import FileWatch
from changesource_sdk.adapter import Insert

LONG = 30.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's own")


@linux
@pytest.mark.parametrize("mode", ["wal", "delete", "truncate"])
def test_a_commit_is_seen_long_before_the_next_look(mode: str, db: sqlite3.Connection, path: str) -> None:
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path, poll=LONG)
    stream = adapter.changes(adapter.snapshot().position)
    timer = threading.Timer(1.0, _insert, (path,))
    timer.start()
    began = time.monotonic()
    assert list(next(stream).changes) == [Insert("t", {"id": 1})]
    assert time.monotonic() - began < LONG / 2
    timer.join()


def _insert(path: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO t VALUES (1)")


@linux
def test_other_files_of_the_folder_do_not_stir(db: sqlite3.Connection, path: str) -> None:
    watching = FileWatch(path, threading.Event())
    Path(path).with_name("other.db").write_text("something")
    assert not watching.wait(0.05)
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    assert watching.wait(LONG)
    watching.close()


@pytest.mark.parametrize("is_silent", [False, True])
def test_closing_ends_a_long_wait(is_silent: bool, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_silent:
        monkeypatch.setattr(watch, "_watch_folder", lambda folder: None)
    closed = threading.Event()
    watching = FileWatch(path, closed)
    closed.set()
    began = time.monotonic()
    assert not watching.wait(LONG)
    assert time.monotonic() - began < LONG / 2
    watching.close()


def test_without_word_from_the_system_commits_are_found_by_looking(
    db: sqlite3.Connection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_watch_folder", lambda folder: None)
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    adapter = SqliteAdapter(path)
    stream = adapter.changes(adapter.snapshot().position)
    timer = threading.Timer(0.2, _insert, (path,))
    timer.start()
    assert list(next(stream).changes) == [Insert("t", {"id": 1})]
    timer.join()


def test_a_folder_that_cannot_be_watched_is_no_error(tmp_path: Path) -> None:
    assert watch._watch_folder(tmp_path / "nowhere") is None
