"""The tables that consumers and push processors share, kept in the user's database.

Zero's push processors write mutation ids and results to `{app}_{shard}.clients` and `.mutations` in the same
transaction as the data, and `zero-deploy-permissions` writes `{app}.permissions`. So these tables have the layout of
the official server, and are replicated like other tables, through their own publication. Existing tables are not
changed.
"""

from __future__ import annotations

from dataclasses import replace

from adapters.postgres.connection import Connection, quoted
from changesource_sdk import Column, Table

_EXPECTED = Column("mutation", "json")
"""A column of `mutations` that consumers require and the official layout does not have; always null."""

_LOCK = 0x6368_616E_6765
"""Advisory lock while the tables are created: several processes may start at once."""

_SETUP = """
CREATE SCHEMA IF NOT EXISTS {app};
CREATE SCHEMA IF NOT EXISTS {shard};
CREATE TABLE IF NOT EXISTS {app}.permissions (
  permissions jsonb,
  hash text,
  lock bool PRIMARY KEY DEFAULT true CHECK (lock)
);
CREATE OR REPLACE FUNCTION {app}.set_permissions_hash() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.hash = md5(NEW.permissions::text);
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER on_set_permissions BEFORE INSERT OR UPDATE ON {app}.permissions
  FOR EACH ROW EXECUTE FUNCTION {app}.set_permissions_hash();
INSERT INTO {app}.permissions (permissions) VALUES (NULL) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS {shard}.clients (
  "clientGroupID" text NOT NULL,
  "clientID" text NOT NULL,
  "lastMutationID" bigint NOT NULL,
  "userID" text,
  PRIMARY KEY ("clientGroupID", "clientID")
);
CREATE TABLE IF NOT EXISTS {shard}.mutations (
  "clientGroupID" text NOT NULL,
  "clientID" text NOT NULL,
  "mutationID" bigint NOT NULL,
  result json NOT NULL,
  PRIMARY KEY ("clientGroupID", "clientID", "mutationID")
);
CREATE PUBLICATION {publication} FOR TABLE {app}.permissions, {shard}.clients, {shard}.mutations;
"""
_EXISTS = "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = %s)"


def table_names(app: str, shard: int) -> tuple[str, ...]:
    """The full names of the tables of an app and shard."""
    return (f"{app}.permissions", f"{app}_{shard}.clients", f"{app}_{shard}.mutations")


def as_consumers_expect(table: Table, app: str, shard: int) -> Table:
    """The table as consumers require it: `mutations` gets the column that the database does not have."""
    if table.full_name != f"{app}_{shard}.mutations" or table.column(_EXPECTED.name):
        return table
    return replace(table, columns=(*table.columns, _EXPECTED))


def ensure_system_tables(db: Connection, app: str, shard: int, publication: str) -> bool:
    """Create the tables and their publication unless they exist; returns whether it created them."""
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        if _is_there(db, publication):
            return False
        setup = _SETUP.format(app=quoted(app), shard=quoted(f"{app}_{shard}"), publication=quoted(publication))
        db.execute(setup.encode())
    return True


def _is_there(db: Connection, publication: str) -> bool:
    row = db.execute(_EXISTS, [publication]).fetchone()
    return row is not None and bool(row[0])
