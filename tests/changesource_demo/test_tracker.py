"""The demo's store and the one who works in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from changesource_demo.tracker import PINNED, IssueTracker, Writer
from tests.support.waiting import until


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as store:
        return store.execute(query).fetchall()


def test_a_tracker_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "tracker.db"
    IssueTracker.create(path)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("DELETE FROM issue")
    tracker = IssueTracker.create(path)
    assert rows(path, "SELECT count(*), sum(pinned) FROM issue") == [(tracker.issues, PINNED)]
    assert rows(path, 'SELECT count(*) FROM "zero_0.clients"') == [(0,)]


def test_the_writer_leaves_pinned_issues_alone_and_rests_when_told(tmp_path: Path) -> None:
    tracker = IssueTracker.create(tmp_path / "tracker.db")
    pinned = f"SELECT * FROM issue WHERE id <= {PINNED}"
    before = rows(tracker.path, pinned)
    writer = Writer(tracker, per_second=200)
    thread = writer.start()
    until(lambda: writer.writes >= 20, "twenty writes")
    writer.per_second = 0
    writer.stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert rows(tracker.path, pinned) == before
    (changed,) = rows(tracker.path, f"SELECT count(DISTINCT modified) FROM issue WHERE id > {PINNED}")[0]
    assert changed > 1
    assert writer.wrote_at is not None
