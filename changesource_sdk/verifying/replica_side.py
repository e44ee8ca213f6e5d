"""The rows of a cache: its replica file, official or ours, read at one moment while the cache runs."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from changesource_sdk.errors import StateError
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.verifying.log_side import json_columns, key_columns
from changesource_sdk.verifying.sides import Rows, Side, canonical_key, canonical_row
from changesource_sdk.verifying.wal2 import is_wal2, readable_copy
from protocol.specs import VERSION_COLUMN
from service_kit.sqlite import connect, quoted

_WATERMARKS = {
    "_zero.replicationState": 'SELECT stateVersion FROM "_zero.replicationState"',
    "_cache.state": 'SELECT version FROM "_cache.state"',
}
"""Where each kind of cache keeps the watermark of the last transaction it applied."""

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def replica_side(path: Path, schema: ConsumerSchema) -> Side:
    """The rows of the tables that the log's schema has; the cache's own are left out. Raises `StateError`."""
    with _opened(path) as db:
        db.execute("BEGIN")
        there = {name for (name,) in db.execute(_TABLES)}
        query = next((sql for table, sql in _WATERMARKS.items() if table in there), None)
        if query is None:
            raise StateError(
                "no-replica", "the file is not a replica of a cache", str(path), "give ZERO_REPLICA_FILE of the cache"
            )
        ((watermark,),) = db.execute(query).fetchall()
        tables = {name: _rows(db, name, schema) for name in sorted(there & schema.tables.keys())}
    return Side("replica", str(watermark), tables)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise StateError("no-replica", "there is no such file", str(path), "give ZERO_REPLICA_FILE of the cache")
    if not is_wal2(path):
        with closing(connect(path, mode="ro")) as db:
            yield db
        return
    with tempfile.TemporaryDirectory(prefix="changesource-verify-") as folder:
        copy = Path(folder) / "replica.db"
        readable_copy(path, copy)
        with closing(connect(copy, mode="ro")) as db:
            yield db


def _rows(db: sqlite3.Connection, table: str, schema: ConsumerSchema) -> Rows:
    cursor = db.execute(f"SELECT * FROM {quoted(table)}")
    names = [column[0] for column in cursor.description]
    documents, key = json_columns(schema, table), key_columns(schema, table)
    rows: Rows = {}
    for values in cursor:
        stored = dict(zip(names, values, strict=True))
        stored.pop(VERSION_COLUMN, None)
        row = canonical_row(stored, documents)
        rows[canonical_key(row, key or row)] = row
    return rows
