"""A client's record in a SQLite file: rows, cookie and unconfirmed mutations survive a restart.

A file belongs to one running client; a second one is refused. It also belongs to one schema. If it is opened with
another schema, the server's rows are dropped and the client syncs again with new ids. If mutations are still queued, it
is refused instead, because only a program with the old schema can push them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from protocol import values
from protocol.sync.js_json import stringify
from reference_cache.client.errors import ClientError
from reference_cache.client.schema_document import schema_document
from reference_cache.client.store import ClientIdentity, QueuedMutation, Record, RecordChange
from reference_cache.zql.query.query_id import text_hash
from reference_cache.zql.schema import Row, Schema
from service_kit.sqlite import connect

LAYOUT = 1
"""Version of the tables below; a file with another one is refused."""

TABLES = """
CREATE TABLE IF NOT EXISTS record (
  only INTEGER PRIMARY KEY CHECK (only = 1), layout INTEGER NOT NULL, schema TEXT NOT NULL, value TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY, name TEXT NOT NULL, args TEXT NOT NULL, timestamp INTEGER);
CREATE TABLE IF NOT EXISTS rows (
  table_name TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (table_name, key)
) WITHOUT ROWID;
"""


class SqliteLocalStore:
    """A store in one file. Invariant: the file holds the record and rows after the last `save`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # Open between `load` and `close`.
        self._connection: sqlite3.Connection | None = None
        # Fingerprint of the schema that `load` was called with, written by every `save`.
        self._schema = ""

    def load(self, schema: Schema) -> tuple[Record, dict[str, list[Row]]]:
        self._schema = _fingerprint(schema)
        connection = self._open()
        stored = connection.execute("SELECT layout, schema, value FROM record").fetchone()
        if stored is None:
            return Record(ClientIdentity.new()), {}
        layout, stored_schema, value = stored
        if layout != LAYOUT:
            raise ClientError("unknown-layout", f"the file has layout {layout}", str(self.path), "use a new file")
        queue = [
            QueuedMutation(id, name, json.loads(args), timestamp)
            for id, name, args, timestamp in connection.execute("SELECT * FROM queue ORDER BY id")
        ]
        if stored_schema != self._schema:
            return self._reset_for_schema(queue), {}
        return _record(json.loads(value), queue), self._rows(schema)

    def _open(self) -> sqlite3.Connection:
        try:
            connection = connect(self.path, busy_seconds=0, one_thread=True)
            # Holds the file's lock from the first write until `close`: this is what refuses a second client.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)
        except sqlite3.OperationalError as error:
            fix = "close the other client, or give each client a file of its own"
            raise ClientError("store-unavailable", str(error), str(self.path), fix) from None
        except sqlite3.DatabaseError as error:
            raise ClientError("bad-store", str(error), str(self.path), "use a new file") from None
        self._connection = connection
        return connection

    def _reset_for_schema(self, queue: list[QueuedMutation]) -> Record:
        if queue:
            message = f"{len(queue)} mutations were queued under another schema and have not been confirmed"
            fix = "open the file with the schema it was made with until they are pushed, or use a new file"
            raise ClientError("schema-changed", message, str(self.path), fix)
        record = Record(ClientIdentity.new())
        self.save(record, RecordChange(cleared=True))
        return record

    def _rows(self, schema: Schema) -> dict[str, list[Row]]:
        rows: dict[str, list[Row]] = {name: [] for name in schema.tables}
        assert self._connection is not None
        for table, value in self._connection.execute("SELECT table_name, value FROM rows"):
            rows[table].append(tuple(json.loads(value)))
        return rows

    def save(self, record: Record, change: RecordChange) -> None:
        with self._transaction() as connection:
            if change.cleared:
                connection.execute("DELETE FROM rows")
            deleted = [(each.table, stringify(each.key)) for each in change.rows if each.row is None]
            connection.executemany("DELETE FROM rows WHERE table_name = ? AND key = ?", deleted)
            written = [
                (each.table, stringify(each.key), values.dumps(list(each.row)).decode())
                for each in change.rows
                if each.row is not None
            ]
            connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", written)
            kept = {each.id for each in record.queue}
            connection.executemany(
                "DELETE FROM queue WHERE id = ?",
                [(id,) for (id,) in connection.execute("SELECT id FROM queue").fetchall() if id not in kept],
            )
            if change.queued is not None:
                queued = change.queued
                row = (queued.id, queued.name, values.dumps(queued.args).decode(), queued.timestamp)
                connection.execute("INSERT INTO queue VALUES (?, ?, ?, ?)", row)
            document = values.dumps(_document(record)).decode()
            connection.execute(
                "INSERT OR REPLACE INTO record VALUES (1, ?, ?, ?)",
                (LAYOUT, self._schema, document),
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._connection is not None
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _fingerprint(schema: Schema) -> str:
    """A hash of everything that decides how rows are stored or what `clientSchema` the server gets."""
    own = [[name, list(table.columns), list(table.primary_key)] for name, table in schema.tables.items()]
    return text_hash(stringify([own, schema_document(schema)]))


def _document(record: Record) -> dict[str, Any]:
    return {
        "identity": asdict(record.identity),
        "cookie": record.cookie,
        "lastMutationID": record.last_mutation_id,
        "newestMutationID": record.newest_mutation_id,
        "desired": sorted(record.desired),
        "got": sorted(record.got),
    }


def _record(document: dict[str, Any], queue: list[QueuedMutation]) -> Record:
    return Record(
        ClientIdentity(**document["identity"]),
        document["cookie"],
        document["lastMutationID"],
        document["newestMutationID"],
        set(document["desired"]),
        set(document["got"]),
        queue,
    )
