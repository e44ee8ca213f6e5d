"""The replica's own tables: its state and its catalog, stored in the same file and transactions as the data."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from protocol.specs import ColumnSpec
from reference_cache.replica.catalog import SYSTEM_PREFIX, Catalog, StoredIndex, StoredTable
from reference_cache.replica.errors import UnusableReplica
from service_kit.sqlite import quoted

FORMAT = 1
"""Changes when the layout of the file does; a replica of another format is made anew."""

STATE, TABLES, INDEXES, COMMITS, FRESH = (
    quoted(SYSTEM_PREFIX + name) for name in ("state", "tables", "indexes", "commits", "fresh")
)

_CREATE = (
    f"CREATE TABLE {STATE} (format INTEGER, app TEXT, shard INTEGER, publications TEXT, "
    "replica_version TEXT, version TEXT, log_start TEXT)",
    f"CREATE TABLE {TABLES} (name TEXT PRIMARY KEY, columns TEXT, unfilled TEXT, defaults TEXT)",
    f'CREATE TABLE {INDEXES} (name TEXT PRIMARY KEY, "table" TEXT, is_unique INTEGER, columns TEXT)',
    f'CREATE TABLE {COMMITS} (id INTEGER PRIMARY KEY, version TEXT, kind TEXT, "table" TEXT, first INTEGER, '
    "last INTEGER)",
    f"CREATE INDEX {quoted(SYSTEM_PREFIX + 'commits_version')} ON {COMMITS} (version)",
    f'CREATE TABLE {FRESH} ("table" TEXT, key TEXT, note TEXT, PRIMARY KEY ("table", key)) WITHOUT ROWID',
)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """`replica_version` is the initial sync the data stems from, `version` the last transaction in it.

    The change log has everything after `log_start`.
    """

    replica_version: str
    version: str
    log_start: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose data it is: the app, its shard, and the publications asked for."""

    app_id: str
    shard_num: int = 0
    publications: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.app_id}_{self.shard_num} with publications {sorted(self.publications)}"


def create_system_tables(connection: sqlite3.Connection, origin: Origin) -> None:
    """Make the replica's own tables in an empty file."""
    for statement in _CREATE:
        connection.execute(statement)
    publications = orjson.dumps(sorted(origin.publications)).decode()
    connection.execute(
        f"INSERT INTO {STATE} VALUES (?, ?, ?, ?, '', '', '')", (FORMAT, origin.app_id, origin.shard_num, publications)
    )


def read_state(connection: sqlite3.Connection) -> ReplicaState:
    """Which version the connection sees."""
    found = connection.execute(f"SELECT replica_version, version, log_start FROM {STATE}").fetchone()
    return ReplicaState(*found)


def check_origin(connection: sqlite3.Connection, origin: Origin) -> None:
    """Refuse a replica of another format, app, shard or set of publications."""
    try:
        found = connection.execute(f"SELECT format, app, shard, publications FROM {STATE}").fetchone()
    except sqlite3.DatabaseError as error:
        raise UnusableReplica(f"the file is no replica of this cache ({error}); move it away") from None
    if found[0] != FORMAT:
        raise UnusableReplica(f"the replica has format {found[0]}, this cache writes {FORMAT}; delete it")
    stored = Origin(found[1], found[2], frozenset(orjson.loads(found[3])))
    if stored != origin:
        raise UnusableReplica(f"the replica was made for {stored}, not for {origin}; delete it")


def load_catalog(connection: sqlite3.Connection) -> Catalog:
    """The catalog as of the connection's snapshot."""
    tables = {
        name: StoredTable(name, _columns(columns), frozenset(orjson.loads(unfilled)), orjson.loads(defaults))
        for name, columns, unfilled, defaults in connection.execute(f"SELECT * FROM {TABLES} ORDER BY rowid")
    }
    indexes = {
        name: StoredIndex(name, table, bool(unique), orjson.loads(columns))
        for name, table, unique, columns in connection.execute(f"SELECT * FROM {INDEXES} ORDER BY rowid")
    }
    return Catalog(tables, indexes)


def save_catalog(connection: sqlite3.Connection, catalog: Catalog) -> None:
    """Store the catalog, whole: it is small and seldom changes."""
    connection.execute(f"DELETE FROM {TABLES}")
    connection.execute(f"DELETE FROM {INDEXES}")
    tables = [
        (each.name, _columns_json(each.columns), _json(sorted(each.unfilled)), _json(each.defaults))
        for each in catalog.tables.values()
    ]
    indexes = [(each.name, each.table, each.unique, _json(each.columns)) for each in catalog.indexes.values()]
    connection.executemany(f"INSERT INTO {TABLES} VALUES (?, ?, ?, ?)", tables)
    connection.executemany(f"INSERT INTO {INDEXES} VALUES (?, ?, ?, ?)", indexes)


def _columns(text: str) -> dict[str, ColumnSpec]:
    return {name: ColumnSpec.model_validate(spec) for name, spec in orjson.loads(text).items()}


def _columns_json(columns: Mapping[str, ColumnSpec]) -> str:
    return _json({name: spec.to_json() for name, spec in columns.items()})


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
