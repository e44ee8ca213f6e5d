"""The replica's system tables: state and catalog, stored in the same file and transactions as the data."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from protocol.fold.indexes import FoldedIndex, Indexes
from protocol.specs import ColumnSpec
from reference_cache.replica.catalog import SYSTEM_PREFIX, Catalog, StoredTable
from reference_cache.replica.errors import UnusableReplica
from service_kit.sqlite import quoted

FORMAT = 1
"""Version of the file's layout; a replica of another format is refused."""

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
    """`replica_version` is the watermark of the initial sync, `version` that of the last transaction in the replica.

    The change log has everything after `log_start`.
    """

    replica_version: str
    version: str
    log_start: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose data a replica holds: app, shard, and requested publications."""

    app_id: str
    shard_num: int = 0
    publications: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.app_id}_{self.shard_num} with publications {sorted(self.publications)}"


def create_system_tables(connection: sqlite3.Connection, origin: Origin) -> None:
    """Create the system tables in an empty file."""
    for statement in _CREATE:
        connection.execute(statement)
    publications = orjson.dumps(sorted(origin.publications)).decode()
    connection.execute(
        f"INSERT INTO {STATE} VALUES (?, ?, ?, ?, '', '', '')", (FORMAT, origin.app_id, origin.shard_num, publications)
    )


def read_state(connection: sqlite3.Connection) -> ReplicaState:
    """The state that the connection's snapshot sees."""
    return ReplicaState(*connection.execute(f"SELECT replica_version, version, log_start FROM {STATE}").fetchone())


def check_origin(connection: sqlite3.Connection, origin: Origin) -> None:
    """Raise `UnusableReplica` for another format, app, shard or set of publications."""
    try:
        row = connection.execute(f"SELECT format, app, shard, publications FROM {STATE}").fetchone()
    except sqlite3.DatabaseError as error:
        raise UnusableReplica(f"the file is no replica of this cache ({error}); move it away") from None
    format, app_id, shard_num, publications = row
    if format != FORMAT:
        raise UnusableReplica(f"the replica has format {format}, this cache writes {FORMAT}; delete it")
    stored = Origin(app_id, shard_num, frozenset(orjson.loads(publications)))
    if stored != origin:
        raise UnusableReplica(f"the replica was made for {stored}, not for {origin}; delete it")


def load_catalog(connection: sqlite3.Connection) -> Catalog:
    """The catalog as of the connection's snapshot."""
    tables = {
        name: StoredTable(name, _columns(columns), frozenset(orjson.loads(unfilled)), orjson.loads(defaults))
        for name, columns, unfilled, defaults in connection.execute(f"SELECT * FROM {TABLES} ORDER BY rowid")
    }
    indexes = {
        name: FoldedIndex(name, table, bool(unique), orjson.loads(columns))
        for name, table, unique, columns in connection.execute(f"SELECT * FROM {INDEXES} ORDER BY rowid")
    }
    return Catalog(tables, Indexes(indexes))


def save_catalog(connection: sqlite3.Connection, catalog: Catalog) -> None:
    """Store the whole catalog: it is small and rarely changes."""
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
