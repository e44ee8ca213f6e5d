"""The same stream into the official zero-cache and into ours: the two replicas hold the same.

One source serves both. Each test sends a transaction of its kind and compares tables, columns, keys and rows when both
have it.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reference_cache.replica.replica import open_replica
from reference_cache.replica.stored_catalog import Origin
from reference_cache.replicator.replicator import Replicator
from reference_cache.replicator.settings import ReplicatorSettings
from tests.support.fakes.tiny_source import ITEM, SNAPSHOT, Message, TinySource, insert, table
from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

TYPES = {
    "id": "int8",
    "small": "int2",
    "real": "float8",
    "price": "numeric",
    "flag": "bool",
    "title": "text",
    "doc": "json",
    "docs": "jsonb",
    "day": "date",
    "at": "timestamptz",
    "code": "varchar",
    "raw": "bytea",
}
KIND = {"schema": "public", "name": "kind", "rowKey": {"columns": ["id"]}}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "small": 0, "real": 0, "price": 0, "flag": False, "title": "", "doc": {}, "docs": [], "raw": "\\x"},
    {"id": 2},
    {"id": 3, "small": -1, "real": 0.1, "price": 12.25, "flag": True, "title": "é漢🜚", "doc": {"a": [1, None]}},
    {"id": 2**53 - 1, "real": 1e300, "price": 1.5, "doc": "text", "docs": 5, "day": 1709164800000, "code": "null"},
    {"id": 2**62, "at": 1709210096789.123, "doc": True, "docs": "7", "title": "a\0b", "raw": "\\x00ff"},
    {"id": -5, "real": 5e-324, "at": 1709210096789, "doc": [], "docs": None, "title": "x" * 5000},
]


def put(row: dict[str, Any], tag: str = "insert", **fields: Any) -> Message:
    return ["data", {"tag": tag, "relation": KIND, "new": dict.fromkeys(TYPES) | row, **fields}]


def schema_change(tag: str, **fields: Any) -> Message:
    return ["data", {"tag": tag, **fields}]


@dataclass(slots=True)
class Both:
    """A source and the two caches that follow it."""

    source: TinySource
    official: ZeroCache
    ours: Path

    def commit(self, *messages: Message) -> None:
        """Send a transaction, and compare when both have it."""
        assert self.official.process.running, "the official cache did not survive the transaction before"
        self.compare(self.source.commit(*messages))

    def compare(self, watermark: str) -> None:
        self.official.replica.wait_for_watermark(watermark)
        until(lambda: open_replica(self.ours).state().version >= watermark, f"our replica at {watermark}")
        connection = open_replica(self.ours).connect()
        tables = _our_tables(connection)
        assert tables == self.official.replica.tables()
        for name in sorted(tables):
            self._compare_table(connection, name)

    def _compare_table(self, connection: sqlite3.Connection, name: str) -> None:
        declared = self.official.replica.columns(name)
        found = connection.execute("SELECT name FROM pragma_table_info(?)", (name,)).fetchall()
        assert {column for (column,) in found} - {"_0_version"} == set(declared), name
        assert _our_indexes(connection, name) == sorted(self.official.replica.indexes(name).items()), name
        columns = ", ".join(f'"{column}"' for column in declared)
        sql = f'SELECT {columns} FROM "{name}"'
        ours, theirs = connection.execute(sql).fetchall(), self.official.replica.query(sql)
        kinds = list(declared.values())
        assert sorted(_row(kinds, row) for row in ours) == sorted(_row(kinds, row) for row in theirs), name


def _our_tables(connection: sqlite3.Connection) -> set[str]:
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {name for (name,) in found if not name.startswith(("_cache.", "sqlite_"))}


def _our_indexes(connection: sqlite3.Connection, table: str) -> list[tuple[str, list[str]]]:
    names = [name for (name,) in connection.execute("SELECT name FROM pragma_index_list(?)", (table,))]
    sql = "SELECT name FROM pragma_index_info(?) ORDER BY seqno"
    return sorted((name, [column for (column,) in connection.execute(sql, (name,))]) for name in names)


def _row(kinds: list[str], row: tuple[object, ...]) -> str:
    return repr([_value(kind, value) for kind, value in zip(kinds, row, strict=True)])


def _value(declared: str, value: object) -> object:
    """JSON as a document, since its text may be spaced differently; anything else with its exact type."""
    if value is not None and declared.startswith("json"):
        return "json", json.loads(str(value))
    return value


@contextmanager
def replicating(url: str, path: Path) -> Iterator[None]:
    """Our replicator on a loop and thread of its own."""
    loop = asyncio.new_event_loop()
    replicator = Replicator(ReplicatorSettings(url, path, Origin("zero")))
    task = loop.create_task(replicator.run())
    thread = threading.Thread(target=loop.run_until_complete, args=(asyncio.wait([task]),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def both(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    first = [*table("public", "kind", TYPES, ["id"]), *map(put, ROWS), insert(1, "one"), insert(2, "two")]
    ours = folder / "ours.db"
    with TinySource(*first) as source, zero_caches(postgres, folder) as make, replicating(source.url, ours):
        official = make(source.url).start()
        until(ours.exists, "our replica")
        yield Both(source, official, ours)


def test_an_initial_sync_of_every_type(both: Both) -> None:
    both.compare(SNAPSHOT)


def test_row_versions_are_the_watermark_of_the_last_change(both: Both) -> None:
    both.commit(insert(2, "zwei"), insert(3, "drei"))
    sql = 'SELECT id, "_0_version" FROM item ORDER BY id'
    assert open_replica(both.ours).connect().execute(sql).fetchall() == both.official.replica.query(sql)


def test_live_rows_of_every_type(both: Both) -> None:
    both.commit(*(put({**row, "id": 100 + place}) for place, row in enumerate(ROWS)))
    changed = [put({**row, "id": 105 - place}, "update", key=None) for place, row in enumerate(ROWS)]
    both.commit(*changed, put({"id": 9000, "title": "not there before"}, "update", key=None))
    both.commit(put({"id": 200}, "update", key={"id": 100}), put({"id": 201}, "update", key={"id": 201}))


def test_partial_updates_upserts_and_deletes(both: Both) -> None:
    partial = {"tag": "update", "relation": KIND, "key": None, "new": {"id": 103, "title": "only this"}}
    sparse = {"tag": "insert", "relation": KIND, "new": {"id": 104, "title": "the rest is null"}}
    gone = [{"tag": "delete", "relation": KIND, "key": {"id": key, "title": "?"}} for key in (105, 77777)]
    both.commit(["data", partial], ["data", sparse], *(["data", each] for each in gone))


def test_json_as_text(both: Both) -> None:
    rows = [{"id": 300, "doc": '{"a": 1.50}', "docs": "null"}, {"id": 301, "doc": {"b": 2}, "docs": "[1]"}]
    both.commit(*map(put, rows))


def test_a_truncate(both: Both) -> None:
    both.commit(insert(500, "before"), schema_change("truncate", relations=[ITEM]), insert(501, "after"))


def test_columns_come_change_and_go(both: Both) -> None:
    name = {"schema": "public", "name": "kind"}

    def column(column: str, data_type: str, **more: Any) -> dict[str, Any]:
        return {"name": column, "spec": {"pos": 20, "dataType": data_type, **more}}

    both.commit(schema_change("add-column", table=name, column=column("added", "int4", dflt="7")))
    both.commit(schema_change("add-column", table=name, column=column("words", "text", dflt="'it''s'::text")))
    both.commit(schema_change("update-column", table=name, old=column("code", "varchar"), new=column("c", "varchar")))
    both.commit(schema_change("update-column", table=name, old=column("small", "int2"), new=column("small", "text")))
    both.commit(schema_change("drop-column", table=name, column="words"))
    rest = {column: None for column in TYPES if column != "code"}
    both.commit(["data", {"tag": "insert", "relation": KIND, "new": {**rest, "id": 400, "c": "x", "small": "y"}}])


def test_tables_and_indexes_come_change_and_go(both: Both) -> None:
    item, moved = {"schema": "public", "name": "item"}, {"schema": "other", "name": "things"}
    spec = {"schema": "public", "tableName": "item", "name": "item_name", "unique": False, "columns": {"name": "DESC"}}
    both.commit(schema_change("create-index", spec=spec))
    both.commit(schema_change("drop-index", id={"schema": "public", "name": "item_name"}))
    both.commit(schema_change("rename-table", old=item, new=moved))
    both.commit(*table("public", "fresh", {"a": "text", "b": "int4"}, ["a", "b"]))
    both.commit(schema_change("drop-table", id={"schema": "public", "name": "fresh"}))
