"""Event triggers in the database that announce schema changes in the stream.

A trigger writes the catalog's `document` into the stream inside the transaction that changed it, so it arrives in order
with the rows. It is created if the role may do so; otherwise `watch` announces the change a little later. A trigger
never makes a user's command fail: if it cannot describe the catalog, it announces only that something has changed, and
the reader reads the catalog itself.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from psycopg.errors import InsufficientPrivilege

from adapters.postgres.catalog import document
from adapters.postgres.catalog.model import STATE_SCHEMA
from adapters.postgres.connection import Connection
from adapters.postgres.replication.visibility import Horizon
from adapters.postgres.schema_changes.ddl import Notice
from adapters.postgres.schema_changes.versions import TABLES

PREFIX = "changesource/"
"""The prefix of our logical messages is this and the name of the slot."""
REWRITE_PREFIX = "changesource:rewrite"
EXACT_TAGS = ("ALTER TABLE", "CREATE TABLE", "CREATE TABLE AS", "CREATE INDEX", "DROP TABLE", "DROP INDEX")


def described(tag: str, publications: str) -> str:
    """SQL for the content of an announcement; `tag` and `publications` are SQL expressions."""
    return f"""SELECT jsonb_build_object('tag', {tag}, 'snapshot', pg_current_snapshot()::text,
  'document', ({document.query(publications)}))"""


def unknown(tag: str) -> str:
    """SQL for an announcement without a description."""
    return f"jsonb_build_object('tag', {tag}, 'snapshot', pg_current_snapshot()::text, 'document', NULL)"


_LOCK = 5_106_274_019
_TAGS = (
    *EXACT_TAGS,
    "SELECT INTO",
    "ALTER INDEX",
    "CREATE PUBLICATION",
    "ALTER PUBLICATION",
    "DROP PUBLICATION",
    "CREATE SCHEMA",
    "ALTER SCHEMA",
    "DROP SCHEMA",
    "ALTER TYPE",
    "DROP TYPE",
    "ALTER DOMAIN",
    "DROP DOMAIN",
    "DROP EXTENSION",
    "DROP OWNED",
)
# The texts of functions and triggers are part of `_RELEASE`: any change installs the triggers again.
_FUNCTIONS = f"""
CREATE OR REPLACE FUNCTION {STATE_SCHEMA}.announce() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $function$
DECLARE
  pipeline record;
  found jsonb;
  digest text;
BEGIN
  IF tg_tag IN ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'CREATE INDEX')
    AND NOT EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE schema_name IS DISTINCT FROM 'pg_temp') THEN
    RETURN;
  END IF;
  FOR pipeline IN SELECT slot, publications FROM {STATE_SCHEMA}.pipelines LOOP
    BEGIN
      found := ({described("tg_tag", "pipeline.publications")});
    EXCEPTION WHEN OTHERS THEN
      found := {unknown("tg_tag")};
    END;
    digest := md5((found -> 'document')::text);
    IF current_setting('changesource.s_' || pipeline.slot, true) IS DISTINCT FROM digest THEN
      PERFORM set_config('changesource.s_' || pipeline.slot, coalesce(digest, ''), true);
      PERFORM pg_logical_emit_message(true, '{PREFIX}' || pipeline.slot, found::text);
    END IF;
  END LOOP;
EXCEPTION WHEN OTHERS THEN
  RAISE WARNING 'changesource could not announce a schema change: %', SQLERRM;
END $function$;
CREATE OR REPLACE FUNCTION {STATE_SCHEMA}.announce_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $function$
BEGIN
  PERFORM pg_logical_emit_message(true, '{REWRITE_PREFIX}', pg_event_trigger_table_rewrite_oid()::text);
END $function$;
"""
_TRIGGERS = f"""
DROP EVENT TRIGGER IF EXISTS changesource_announce;
CREATE EVENT TRIGGER changesource_announce ON ddl_command_end
  WHEN TAG IN ({", ".join(f"'{tag}'" for tag in _TAGS)}) EXECUTE FUNCTION {STATE_SCHEMA}.announce();
DROP EVENT TRIGGER IF EXISTS changesource_announce_rewrite;
CREATE EVENT TRIGGER changesource_announce_rewrite ON table_rewrite
  EXECUTE FUNCTION {STATE_SCHEMA}.announce_rewrite();
"""
_RELEASE = hashlib.md5((_FUNCTIONS + _TRIGGERS).encode(), usedforsecurity=False).hexdigest()
_INSTALLED = """SELECT count(*) FROM pg_event_trigger
WHERE evtname IN ('changesource_announce', 'changesource_announce_rewrite') AND evtenabled <> 'D'
AND obj_description(oid, 'pg_event_trigger') = %s"""
_FORGET_OTHERS = f"""DELETE FROM {STATE_SCHEMA}.pipelines
WHERE slot <> %s AND slot NOT IN (SELECT slot_name FROM pg_replication_slots)"""
_REGISTER = f"""INSERT INTO {STATE_SCHEMA}.pipelines (slot, publications) VALUES (%s, %s)
ON CONFLICT (slot) DO UPDATE SET publications = excluded.publications
WHERE pipelines.publications IS DISTINCT FROM excluded.publications"""


def install(db: Connection, slot: str, publications: tuple[str, ...]) -> bool:
    """Create missing tables and triggers; returns whether triggers announce schema changes."""
    if db.execute("SELECT to_regclass(%s)", (f"{STATE_SCHEMA}.versions",)).fetchone() == (None,):
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            db.execute(TABLES)
    db.execute(_FORGET_OTHERS, (slot,))
    db.execute(_REGISTER, (slot, list(publications)))
    return has_triggers(db) or _install_triggers(db)


def has_triggers(db: Connection) -> bool:
    """Whether the triggers of this release exist and are enabled."""
    return db.execute(_INSTALLED, (_RELEASE,)).fetchone() == (2,)


def _install_triggers(db: Connection) -> bool:
    try:
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            db.execute(_FUNCTIONS)
            db.execute(_TRIGGERS)
            for name in ("changesource_announce", "changesource_announce_rewrite"):
                db.execute(f"COMMENT ON EVENT TRIGGER {name} IS '{_RELEASE}'".encode())
    except InsufficientPrivilege:
        return False
    return True


def uninstall(db: Connection) -> None:
    """Drop triggers, functions and tables; positions are invalid afterwards."""
    db.execute("DROP EVENT TRIGGER IF EXISTS changesource_announce")
    db.execute("DROP EVENT TRIGGER IF EXISTS changesource_announce_rewrite")
    db.execute(f"DROP SCHEMA IF EXISTS {STATE_SCHEMA} CASCADE".encode())


@dataclass(frozen=True, slots=True)
class Announcement:
    """A schema change in the stream.

    `document` is None if the trigger could not describe the catalog; `seen` is the snapshot of the description.
    """

    document: str | None
    notice: Notice
    seen: Horizon

    @classmethod
    def parse(cls, content: bytes, rewritten: frozenset[int]) -> Announcement:
        """From the content of a message; `rewritten` are tables announced before it in the same transaction."""
        fields = json.loads(content)
        description = fields["document"]
        notice = Notice(fields["tag"] in EXACT_TAGS, rewritten)
        return cls(
            json.dumps(description) if description is not None else None, notice, Horizon.parse(fields["snapshot"], 0)
        )
