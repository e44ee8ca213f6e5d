"""The replica file of the official zero-cache, by release: its own tables, and how upstream tables appear. Pure.

Everything here was compared with files that zero-cache made (`tests/e2e/test_seed.py`). A release that is not listed is
refused: zero-cache takes a file whose schema version it knows without looking further.

Not here: `sqlite_stat1` and `sqlite_stat4`. zero-cache makes both at its start (`PRAGMA optimize`) where they are
missing, with its own build of SQLite; Python's build usually cannot make the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.schema import Column, Index, Table
from protocol.specs import VERSION_COLUMN
from service_kit.sqlite import quoted

PAGE_SIZE = 4096
CONFIG, STATE, EVENTS = '"_zero.replicationConfig"', '"_zero.replicationState"', '"_zero.runtimeEvents"'

_TABLES_13 = (
    """CREATE TABLE "_zero.versionHistory" (
      dataVersion INTEGER NOT NULL,
      schemaVersion INTEGER NOT NULL,
      minSafeVersion INTEGER NOT NULL,

      lock INTEGER PRIMARY KEY DEFAULT 1 CHECK (lock=1)
    )""",
    """CREATE TABLE "_zero.replicationConfig" (
    replicaVersion TEXT NOT NULL,
    publications TEXT NOT NULL,
    initialSyncContext TEXT DEFAULT '{}',
    lock INTEGER PRIMARY KEY DEFAULT 1 CHECK (lock=1)
  )""",
    """CREATE TABLE "_zero.replicationState" (
    stateVersion TEXT NOT NULL,
    writeTimeMs INTEGER,
    lock INTEGER PRIMARY KEY DEFAULT 1 CHECK (lock=1)
  )""",
    """CREATE TABLE "_zero.changeLog2" (
    "stateVersion"              TEXT NOT NULL,
    "pos"                       INT  NOT NULL,
    "table"                     TEXT NOT NULL,
    "rowKey"                    TEXT NOT NULL,
    "op"                        TEXT NOT NULL,
    "backfillingColumnVersions" TEXT DEFAULT '{}',
    PRIMARY KEY("stateVersion", "pos"),
    UNIQUE("table", "rowKey")
  )""",
    """CREATE TABLE "_zero.runtimeEvents" (
    event TEXT PRIMARY KEY ON CONFLICT REPLACE,
    timestamp TEXT NOT NULL DEFAULT (current_timestamp)
  )""",
    """CREATE TABLE "_zero.column_metadata" (
    table_name TEXT NOT NULL,
    column_name TEXT NOT NULL,
    upstream_type TEXT NOT NULL,
    is_not_null INTEGER NOT NULL,
    is_enum INTEGER NOT NULL,
    is_array INTEGER NOT NULL,
    character_max_length INTEGER,
    backfill TEXT,
    PRIMARY KEY (table_name, column_name)
  )""",
    """CREATE TABLE "_zero.tableMetadata" (
    "schema"           TEXT NOT NULL,
    "table"            TEXT NOT NULL,
    "minRowVersion"    TEXT NOT NULL DEFAULT "00",
    "upstreamMetadata" TEXT,
    "metadata"         TEXT,  -- deprecated
    PRIMARY KEY ("schema", "table")
  )""",
)


@dataclass(frozen=True, slots=True)
class ReplicaLayout:
    """What one release writes: the version of its replica schema, the oldest that may open it, and its own tables."""

    schema_version: int
    min_safe_version: int
    tables: tuple[str, ...]

    def statements(self) -> list[str]:
        """SQL for zero-cache's own tables, with the version of the schema."""
        version = f"VALUES ({self.schema_version}, {self.schema_version}, {self.min_safe_version}, 1)"
        return [*self.tables, f'INSERT INTO "_zero.versionHistory" {version}']


RELEASES = {"1.9.0": ReplicaLayout(13, 1, _TABLES_13)}
"""The releases of `@rocicorp/zero` whose replica is known."""

NEWEST = "1.9.0"


def layout_of(release: str) -> ReplicaLayout:
    """Return the layout of a release. Raises `ConfigurationError` with the code `unknown-release`."""
    if release not in RELEASES:
        raise ConfigurationError(
            "unknown-release",
            f"the replica of zero-cache {release} is not known",
            where="--release",
            fix=f"use one of {', '.join(RELEASES)}, or let zero-cache make its own initial sync",
        )
    return RELEASES[release]


def declared_type(column: Column) -> str:
    """Return the type of a column as zero-cache declares it; SQLite derives the affinity from it."""
    spec = column.spec()
    attributes = (("|NOT_NULL", not column.optional), ("|TEXT_ENUM", spec.is_enum), ("|TEXT_ARRAY", spec.is_array))
    return column.data_type + "".join(text for text, applies in attributes if applies)


def create_table(table: Table, name: str | None = None) -> str:
    """Return the statement that creates a table, under another `name` if one is given."""
    columns = [f"{quoted(column.name)} {quoted(declared_type(column))}" for column in table.columns]
    columns.append(f'{quoted(VERSION_COLUMN)} "text"')
    return f"CREATE TABLE {quoted(name or table.full_name)} (\n" + ",\n".join(columns) + "\n)"


def create_index(index: Index) -> str:
    """Return the statement that creates an index."""
    columns = ",".join(f"{quoted(name)} {direction}" for name, direction in index.directions.items())
    unique = "UNIQUE " if index.unique else ""
    return f"CREATE {unique}INDEX {quoted(index.full_name)} ON {quoted(index.table)} ({columns})"


def column_metadata(tables: Iterable[Table]) -> list[tuple[object, ...]]:
    """Return the rows of `_zero.column_metadata`."""
    return [
        (
            table.full_name,
            column.name,
            column.data_type,
            int(not column.optional),
            int(spec.is_enum),
            int(spec.is_array),
            column.max_length,
            None,
        )
        for table in tables
        for column in table.columns
        for spec in (column.spec(),)
    ]


def publications_text(publications: Iterable[str]) -> str:
    """Return the publications as zero-cache stores them."""
    return orjson.dumps(sorted(publications)).decode()
