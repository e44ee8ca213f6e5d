"""Schema versions, kept in the store: what any position must be resumed with.

Each time the catalog changes, or rows are read in the middle of the stream, a `Version` is stored under the position of
the transaction that did it, before that transaction is handed on. Resuming after a position takes the last version up
to it. A transaction that comes again overwrites its version. Versions behind the acknowledged position are forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from adapters.postgres.catalog.model import STATE_SCHEMA, Catalog
from adapters.postgres.connection import Connection
from adapters.postgres.replication.session import lsn_text
from adapters.postgres.replication.visibility import Horizon, Move
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

    `horizons` are of tables whose rows were read ahead of the stream. `waiting` are tables that consumers have and
    whose rows must be read when the catalog next moves: until then their changes are passed over. `moved` names the
    transactions that last changed a table's definition, for descriptions that may not have seen them.
    """

    catalog: Catalog
    types: Types
    horizons: Mapping[int, Horizon] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    moved: Mapping[int, Move] = field(default_factory=dict)

    def to_json(self) -> str:
        """The version as stored."""
        columns = (column.type_oid for table in self.catalog.tables for column in table.columns)
        fields = {
            "catalog": self.catalog.to_json(),
            "types": [asdict(found) for found in used_types(columns, self.types).values()],
            "horizons": [[oid, h.xmax, sorted(h.running), h.until] for oid, h in self.horizons.items()],
            "waiting": sorted(self.waiting),
            "moved": [[oid, m.xid, m.awaited and sorted(m.awaited)] for oid, m in self.moved.items()],
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Version:
        """The version as it was stored."""
        fields: dict[str, Any] = json.loads(text)
        return cls(
            Catalog.from_json(fields["catalog"]),
            {found["oid"]: PgType(**found) for found in fields["types"]},
            {oid: Horizon(xmax, frozenset(running), until) for oid, xmax, running, until in fields["horizons"]},
            frozenset(fields["waiting"]),
            {oid: Move(xid, awaited and frozenset(awaited)) for oid, xid, awaited in fields["moved"]},
        )


def store_version(db: Connection, slot: str, position: int, version: Version) -> None:
    """Keep the version that holds from `position` on."""
    db.execute(_STORE, (slot, lsn_text(position), version.to_json()))


def last_version(db: Connection, slot: str, position: int) -> Version | None:
    """The version that holds at `position`, if it is kept."""
    found = db.execute(_LAST, (slot, lsn_text(position))).fetchone()
    return Version.from_json(found[0]) if found else None


def forget_versions(db: Connection, slot: str, position: int) -> None:
    """Forget what nobody can resume from any more: `position` is durable downstream."""
    db.execute(_FORGET, (slot, slot, lsn_text(position)))
