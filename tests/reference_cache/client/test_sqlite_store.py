"""The file of a client: whole steps, one owner, one schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from reference_cache.client.errors import ClientError
from reference_cache.client.sqlite_store import SqliteLocalStore
from reference_cache.client.store import QueuedMutation, Record, RecordChange, RowWrite
from reference_cache.zql.schema import schema, table

ITEMS = schema([table("item", {"id": "string", "count": "number", "note": "json?"})], {})
WIDER = schema([table("item", {"id": "string", "count": "number", "note": "json?", "more": "string?"})], {})
MUTATION = QueuedMutation(1, "put", {"id": "a"}, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.db"


def saved(path: Path, *, queued: QueuedMutation | None = None) -> Record:
    store = SqliteLocalStore(path)
    record, _ = store.load(ITEMS)
    record.cookie, record.got, record.desired = "07", {"h1"}, {"h1", "h2"}
    if queued is not None:
        record.queue.append(queued)
        record.newest_mutation_id = queued.id
    writes = [RowWrite("item", "a", ("a", 1, {"x": [None, True]})), RowWrite("item", "b", ("b", 2.5, None))]
    store.save(record, RecordChange(rows=writes, queued=queued))
    store.close()
    return record


def test_what_was_saved_is_loaded(path: Path) -> None:
    record = saved(path, queued=MUTATION)
    found, rows = SqliteLocalStore(path).load(ITEMS)
    assert found == record
    assert rows == {"item": [("a", 1, {"x": [None, True]}), ("b", 2.5, None)]}


def test_rows_are_replaced_deleted_and_cleared(path: Path) -> None:
    record = saved(path)
    store = SqliteLocalStore(path)
    store.load(ITEMS)
    store.save(record, RecordChange(rows=[RowWrite("item", "a", None), RowWrite("item", "b", ("b", 3, None))]))
    store.close()
    store = SqliteLocalStore(path)
    assert store.load(ITEMS)[1] == {"item": [("b", 3, None)]}
    store.save(record, RecordChange(cleared=True, rows=[RowWrite("item", "c", ("c", 1, None))]))
    store.close()
    assert SqliteLocalStore(path).load(ITEMS)[1] == {"item": [("c", 1, None)]}


def test_a_confirmed_mutation_leaves_the_file(path: Path) -> None:
    record = saved(path, queued=MUTATION)
    store = SqliteLocalStore(path)
    store.load(ITEMS)
    record.queue.clear()
    store.save(record, RecordChange())
    store.close()
    assert SqliteLocalStore(path).load(ITEMS)[0].queue == []


def test_a_step_that_fails_changes_nothing(path: Path) -> None:
    record = saved(path)
    store = SqliteLocalStore(path)
    store.load(ITEMS)
    with pytest.raises(Exception, match="JSON"):
        store.save(record, RecordChange(cleared=True, rows=[RowWrite("item", "c", ("c", float("nan"), None))]))
    store.close()
    assert len(SqliteLocalStore(path).load(ITEMS)[1]["item"]) == 2


def test_a_file_in_use_is_refused(path: Path) -> None:
    store = SqliteLocalStore(path)
    record, _ = store.load(ITEMS)
    store.save(record, RecordChange())
    with pytest.raises(ClientError, match="store-unavailable") as refused:
        SqliteLocalStore(path).load(ITEMS)
    assert "a file of its own" in refused.value.fix
    store.close()


def test_another_schema_starts_with_an_empty_store(path: Path) -> None:
    record = saved(path)
    store = SqliteLocalStore(path)
    found, rows = store.load(WIDER)
    assert (rows, found.cookie) == ({}, None)
    assert found.identity != record.identity
    store.close()
    store = SqliteLocalStore(path)
    assert store.load(WIDER)[0] == found
    store.close()


def test_another_schema_is_refused_while_mutations_wait(path: Path) -> None:
    saved(path, queued=MUTATION)
    store = SqliteLocalStore(path)
    with pytest.raises(ClientError, match="1 mutations were queued under another schema"):
        store.load(WIDER)
    store.close()
    assert SqliteLocalStore(path).load(ITEMS)[0].queue == [MUTATION]


def test_what_is_no_store_of_ours_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no database at all, but long enough to look at " * 20)
    with pytest.raises(ClientError, match="bad-store"):
        SqliteLocalStore(text).load(ITEMS)
    newer = tmp_path / "newer.db"
    saved(newer)
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE record SET layout = 99")
    connection.close()
    with pytest.raises(ClientError, match="unknown-layout"):
        SqliteLocalStore(newer).load(ITEMS)
