"""Schema versions, stored in the database: a position is resumed with the version it was read under.

When the catalog changes, or rows are read in the middle of the stream, a `Version` is stored under the position of the
transaction that caused it, before that transaction is passed to the pipeline. Resuming after a position uses the last
version up to it. A transaction that is read again overwrites its version. Versions before the acknowledged position are
deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from adapters.postgres.catalog.model import STATE_SCHEMA, Catalog
from adapters.postgres.connection import Connection
from adapters.postgres.position import lsn_text
from adapters.postgres.replication.visibility import Horizon, Redefinition
from adapters.postgres.types import PgType, Types, used_types

TABLES = f"""
CREATE SCHEMA IF NOT EXISTS {STATE_SCHEMA};
CREATE TABLE IF NOT EXISTS {STATE_SCHEMA}.pipelines (
  slot text PRIMARY KEY, publications text[] NOT NULL,
  server text NOT NULL DEFAULT '', ahead bigint NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS {STATE_SCHEMA}.versions (
  slot text, position pg_lsn, version text NOT NULL, PRIMARY KEY (slot, position));
"""
_LAST = f"SELECT version FROM {STATE_SCHEMA}.versions WHERE slot = %s AND position <= %s ORDER BY position DESC LIMIT 1"
_STORE = f"""INSERT INTO {STATE_SCHEMA}.versions VALUES (%s, %s, %s)
ON CONFLICT (slot, position) DO UPDATE SET version = excluded.version"""
_FORGET = f"""DELETE FROM {STATE_SCHEMA}.versions WHERE slot = %s AND position <
(SELECT max(position) FROM {STATE_SCHEMA}.versions WHERE slot = %s AND position <= %s)"""


@dataclass(frozen=True, slots=True)
class Version:
    """The catalog at a point of the stream and the types of its columns.

    `horizons` are those of tables whose rows were read ahead of the stream. `waiting` are tables whose rows must be
    read at the next announcement of the catalog; until then their changes are skipped. `moved` has the transaction that
    last changed a table's definition, for descriptions whose snapshot may not contain it.
    """

    catalog: Catalog
    types: Types
    horizons: Mapping[int, Horizon] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    moved: Mapping[int, Redefinition] = field(default_factory=dict)

    def to_json(self) -> str:
        columns = (column.type_oid for table in self.catalog.tables for column in table.columns)
        fields = {
            "catalog": self.catalog.to_json(),
            "types": [asdict(pg_type) for pg_type in used_types(columns, self.types).values()],
            "horizons": [[oid, h.xmax, sorted(h.running), h.until] for oid, h in self.horizons.items()],
            "waiting": sorted(self.waiting),
            "moved": [[oid, m.xid, m.unfinished and sorted(m.unfinished)] for oid, m in self.moved.items()],
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Version:
        fields: dict[str, Any] = json.loads(text)
        return cls(
            Catalog.from_json(fields["catalog"]),
            {pg_type["oid"]: PgType(**pg_type) for pg_type in fields["types"]},
            {oid: Horizon(xmax, frozenset(running), until) for oid, xmax, running, until in fields["horizons"]},
            frozenset(fields["waiting"]),
            {oid: Redefinition(xid, others and frozenset(others)) for oid, xid, others in fields["moved"]},
        )


def store_version(db: Connection, slot: str, position: int, version: Version) -> None:
    """Store the version that holds from `position` on."""
    db.execute(_STORE, (slot, lsn_text(position), version.to_json()))


def last_version(db: Connection, slot: str, position: int) -> Version | None:
    """The version that holds at `position`; None if it is deleted."""
    row = db.execute(_LAST, (slot, lsn_text(position))).fetchone()
    return Version.from_json(row[0]) if row else None


def forget_versions(db: Connection, slot: str, position: int) -> None:
    """Delete the versions that are not needed to resume from `position` or later."""
    db.execute(_FORGET, (slot, slot, lsn_text(position)))
