"""Makes a replica of this cache from a seed: a replica file in the official zero-cache's layout (`changesource seed`).

What differs: the declared types of columns (zero-cache keeps JSON and UUIDs in columns that may turn digits into
numbers), the catalog, and the change log with its triggers. So the rows are copied into tables of this cache, by SQLite
alone, and the file replaces the seed when it is complete. If anything fails the seed is still there.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import orjson

from protocol.changes import CreateIndex, CreateTable
from protocol.specs import VERSION_COLUMN, ColumnSpec, IndexSpec, TableSpec
from reference_cache.replica.errors import CannotApply, UnusableReplica
from reference_cache.replica.stored_catalog import STATE, Origin
from reference_cache.replica.writing.initial_load import InitialLoad, load_new
from reference_cache.replica.writing.writer import ReplicaWriter
from service_kit.sqlite import connect, quoted

_CONFIG = '"_zero.replicationConfig"'


def is_seed(path: Path) -> bool:
    """Whether the file is a replica in zero-cache's layout, and not one of this cache."""
    try:
        with closing(connect(path, mode="ro")) as connection:
            names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    except sqlite3.Error:
        return False
    known = {quoted(name) for (name,) in names}
    return _CONFIG in known and STATE not in known


def load_seed(path: Path, origin: Origin) -> ReplicaWriter:
    """Replace the seed at `path` by a replica of its rows and open that. Raises `UnusableReplica`: the seed stays."""
    with closing(connect(path, mode="ro")) as seed:
        version = _version(seed, path, origin)
        tables, indexes = _tables(seed), _indexes(seed)
    load = load_new(path, origin)
    try:
        load.connection.execute("ATTACH ? AS seed", (str(path),))
        load.begin(version, "s")
        for table in tables:
            load.change(CreateTable(spec=table))
            _copy(load, table)
        for index in indexes:
            load.change(CreateIndex(spec=index))
        return load.finish()
    except (CannotApply, sqlite3.Error) as error:
        load.abandon()
        raise UnusableReplica(f"the seed cannot be used for {origin}: {error}; fetch another one") from error
    except BaseException:
        load.abandon()
        raise


def _version(seed: sqlite3.Connection, path: Path, origin: Origin) -> str:
    row = seed.execute(f"SELECT replicaVersion, publications FROM {_CONFIG}").fetchone()
    if row is None:
        raise UnusableReplica(f"{path} has no replica version; get it with `changesource fetch-seed`")
    version, publications = row
    if frozenset(orjson.loads(publications)) != origin.publications:
        raise UnusableReplica(f"the seed has publications {publications}, not those of {origin}; fetch another one")
    state = seed.execute('SELECT stateVersion FROM "_zero.replicationState"').fetchone()
    if state != (version,):
        raise UnusableReplica(f"{path} was used by zero-cache already; fetch a copy for this cache")
    return str(version)


def _tables(seed: sqlite3.Connection) -> list[TableSpec]:
    columns: dict[str, dict[str, ColumnSpec]] = {}
    for table, *described in seed.execute(
        "SELECT table_name, column_name, upstream_type, is_not_null, is_enum, is_array, character_max_length "
        'FROM "_zero.column_metadata" ORDER BY rowid'
    ):
        of_table = columns.setdefault(table, {})
        of_table[described[0]] = _column(len(of_table) + 1, *described[1:])
    return [
        TableSpec.model_validate({"schema": schema, "name": name, "columns": specs})
        for table, specs in columns.items()
        for schema, name in (_split(table),)
    ]


def _column(
    position: int, data_type: str, not_null: int, is_enum: int, is_array: int, length: int | None
) -> ColumnSpec:
    fields: dict[str, object] = {"pos": position, "dataType": data_type, "notNull": bool(not_null)}
    kind = "e" if is_enum else "b"
    if length is not None:
        fields["characterMaximumLength"] = length
    if is_array:
        fields["elemPgTypeClass"] = kind
    elif is_enum:
        fields["pgTypeClass"] = kind
    return ColumnSpec.model_validate(fields)


def _indexes(seed: sqlite3.Connection) -> list[IndexSpec]:
    indexes = []
    for name, table in seed.execute(
        "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY rowid"
    ).fetchall():
        (unique,) = seed.execute('SELECT "unique" FROM pragma_index_list(?) WHERE name = ?', (table, name)).fetchone()
        columns = seed.execute('SELECT name, "desc" FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno', (name,))
        directions = {column: "DESC" if descending else "ASC" for column, descending in columns}
        schema, table_name = _split(table)
        fields = {"schema": schema, "tableName": table_name, "name": _split(name)[1], "unique": bool(unique)}
        indexes.append(IndexSpec.model_validate({**fields, "columns": directions}))
    return indexes


def _split(name: str) -> tuple[str, str]:
    """The schema and the name in it, of a name in the replica."""
    schema, dot, rest = name.partition(".")
    return (schema, rest) if dot else ("public", name)


def _copy(load: InitialLoad, table: TableSpec) -> None:
    names = ", ".join(map(quoted, (*table.columns, VERSION_COLUMN)))
    name = quoted(table.replica_name)
    sql = f"INSERT INTO main.{name} ({names}) SELECT {names} FROM seed.{name} ORDER BY rowid"
    load.loaded += load.connection.execute(sql).rowcount
