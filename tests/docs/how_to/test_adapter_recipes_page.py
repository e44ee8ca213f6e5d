"""The recipes for adapters: each one leads a consumer to the rows of its upstream, and notices a lost position."""

from __future__ import annotations

import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from changesource_sdk import Change, Delete, Insert, ResyncRequired, Update
from tests.docs.fences import as_module, block

PAGE = "docs/how-to/adapter-recipes.md"
Rows = dict[object, dict[str, object]]


def read(adapter: Any) -> tuple[Any, Rows]:
    """The position and the rows of a snapshot, whose partitions travel to another process."""
    snapshot = adapter.snapshot()
    partitions = pickle.loads(pickle.dumps(snapshot.partitions))
    rows = {row["id"]: dict(row) for partition in partitions for row in partition.rows()}
    if snapshot.close is not None:
        snapshot.close()
    return snapshot.position, rows


def follow(adapter: Any, position: Any, rows: Rows) -> Any:
    """Apply what is new; returns the last position."""
    for transaction in adapter.changes(position):
        for change in transaction.changes:
            _apply(rows, change)
        position = transaction.position
    return position


def _apply(rows: Rows, change: Change) -> None:
    match change:
        case Insert(_, row) | Update(_, row):
            rows[row["id"]] = dict(row)
        case Delete(_, key):
            rows.pop(key["id"], None)


@pytest.fixture
def published(tmp_path: Path) -> ModuleType:
    return as_module(block(PAGE, "# published.py"), tmp_path / "published.py")


@pytest.fixture
def polled(tmp_path: Path) -> ModuleType:
    return as_module(block(PAGE, "# polled.py"), tmp_path / "polled.py")


def publish(folder: Path, version: int, **prices: int) -> Rows:
    rows = [{"id": id, "price": price} for id, price in prices.items()]
    (folder / f"catalogue-{version}.json").write_text(json.dumps(rows))
    return {row["id"]: row for row in rows}


def test_versions_that_stay_are_read_by_name(published: ModuleType, tmp_path: Path) -> None:
    publish(tmp_path, 1, a=1)
    publish(tmp_path, 2, a=1, b=2)
    adapter = published.Published(str(tmp_path))
    snapshot = adapter.snapshot()
    assert snapshot.position == 2
    assert pickle.loads(pickle.dumps(snapshot.can_resume))()
    position, rows = read(adapter)
    publish(tmp_path, 3, a=5, b=2)
    newest = publish(tmp_path, 4, b=2, c=3)
    assert follow(adapter, position, rows) == 4
    assert rows == newest
    (tmp_path / "catalogue-2.json").unlink()
    with pytest.raises(ResyncRequired):
        follow(adapter, 2, {})
    assert not published.exists(str(tmp_path), 2)


def test_a_version_column_with_tombstones_is_polled(polled: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            """
            CREATE TABLE clock (version INTEGER, tombstones_from INTEGER);
            INSERT INTO clock VALUES (3, 0);
            CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT, version INTEGER);
            CREATE TABLE deleted_note (id INTEGER PRIMARY KEY, version INTEGER);
            INSERT INTO note VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3);
            """
        )
        adapter = polled.PolledNotes(str(path), str(tmp_path / "state"))
        position, rows = read(adapter)
        assert (position, set(rows)) == (3, {1, 2, 3})
        assert list((tmp_path / "state").iterdir()) == []
        db.executescript(
            """
            UPDATE note SET text = 'other', version = 4 WHERE id = 1;
            INSERT INTO note VALUES (4, 'four', 4);
            DELETE FROM note WHERE id = 2;
            INSERT INTO deleted_note VALUES (2, 5);
            UPDATE clock SET version = 5;
            """
        )
        transactions = list(adapter.changes(position))
        assert [(each.position, len(list(each.changes))) for each in transactions] == [(4, 2), (5, 1)]
        assert follow(adapter, position, rows) == 5
        assert rows == {
            id: {"id": id, "text": text} for id, text in db.execute("SELECT id, text FROM note ORDER BY id")
        }
        db.executescript("DELETE FROM deleted_note; UPDATE clock SET tombstones_from = 5")
    assert follow(adapter, 5, rows) == 5
    with pytest.raises(ResyncRequired):
        follow(adapter, position, rows)
