"""The checks of `changesource doctor`: each says what is the case and, if that is not enough, what to run.

`examine` returns all of them; `require` raises the first that fails, before anything is created in the database.
"""

from __future__ import annotations

from collections.abc import Iterator

from adapters.postgres.catalog.model import STATE_SCHEMA
from adapters.postgres.connection import Connection, address, quoted
from adapters.postgres.replication.slot import slot_state
from adapters.postgres.schema_changes.capture import has_triggers
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import AdapterError, Check

OLDEST = 150_000
"""The first server version with row filters and column lists."""
NEEDED_SLOTS = 2
"""The slot, and a temporary one while a snapshot is taken; each also needs a WAL sender."""

_ROLE = """SELECT current_user::text, r.rolreplication OR r.rolsuper
  OR EXISTS (SELECT FROM pg_roles m WHERE m.rolname = 'rds_replication' AND pg_has_role(current_user, m.oid, 'MEMBER')),
  r.rolsuper FROM pg_roles r WHERE r.rolname = current_user"""
_FREE = """SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots),
  current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication)"""
_CREATE = """SELECT current_database(), has_database_privilege(current_database(), 'CREATE'), to_regnamespace(%s)"""
_UNREADABLE = """SELECT DISTINCT format('%%I.%%I', schemaname, tablename) FROM pg_publication_tables
WHERE pubname = ANY(%s) AND NOT has_table_privilege(format('%%I.%%I', schemaname, tablename), 'SELECT') ORDER BY 1"""


def examine(db: Connection, settings: PostgresSettings) -> Iterator[Check]:
    yield _version(db)
    yield _primary(db)
    yield _wal_level(db)
    yield _replication(db)
    yield from _limits(db, settings)
    yield _own_schema(db)
    yield _readable(db, settings)
    yield _publications(db, settings)
    yield _announcements(db)
    yield _retention(db)


def require(db: Connection, settings: PostgresSettings) -> None:
    """Raise the first check that fails as an `AdapterError`."""
    for check in examine(db, settings):
        if not check.ok:
            raise AdapterError(check.name, check.message, where=address(settings.dsn), fix=check.fix)


def _setting(db: Connection, name: str) -> str:
    answer = db.execute("SELECT current_setting(%s)", (name,)).fetchone()
    return str(answer[0]) if answer else ""


def _version(db: Connection) -> Check:
    version = _setting(db, "server_version")
    is_new = db.info.server_version >= OLDEST
    return Check(
        "server-version", is_new, f"the server is Postgres {version}", "" if is_new else "use Postgres 15 or newer"
    )


def _primary(db: Connection) -> Check:
    is_standby = db.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
    message = "the server is a standby" if is_standby else "the server takes writes"
    return Check("server-role", not is_standby, message, "point the setting `dsn` at the primary" if is_standby else "")


def _wal_level(db: Connection) -> Check:
    level = _setting(db, "wal_level")
    fix = "" if level == "logical" else "ALTER SYSTEM SET wal_level = 'logical'; then restart the server"
    return Check("wal-level", level == "logical", f"wal_level is {level}", fix)


def _replication(db: Connection) -> Check:
    row = db.execute(_ROLE).fetchone()
    assert row is not None
    role, may, _ = row
    if may:
        return Check("replication-privilege", True, f"role {role} may replicate")
    fix = f"as a superuser: ALTER ROLE {quoted(role)} REPLICATION;"
    return Check("replication-privilege", False, f"role {role} may not replicate", fix)


def _limits(db: Connection, settings: PostgresSettings) -> Iterator[Check]:
    row = db.execute(_FREE).fetchone()
    assert row is not None
    state = slot_state(db, settings.slot)
    needed = NEEDED_SLOTS - (state is not None)
    senders = NEEDED_SLOTS - (state is not None and state.active_pid is not None)
    for name, free, wanted in (("max_replication_slots", row[0], needed), ("max_wal_senders", row[1], senders)):
        fix = (
            "" if free >= wanted else f"ALTER SYSTEM SET {name} = {_setting(db, name)} + {wanted - free}; then restart"
        )
        yield Check(name.replace("_", "-"), free >= wanted, f"{free} of {name} are free, {wanted} are needed", fix)


def _own_schema(db: Connection) -> Check:
    row = db.execute(_CREATE, (STATE_SCHEMA,)).fetchone()
    assert row is not None
    database, may_create, schema = row
    if may_create or schema:
        return Check("create-privilege", True, f"schema {STATE_SCHEMA} is there or can be made")
    fix = f"as the database's owner: GRANT CREATE ON DATABASE {quoted(database)} TO {db.info.user};"
    return Check(
        "create-privilege", False, f"schema {STATE_SCHEMA} cannot be made: schema versions are kept in it", fix
    )


def _readable(db: Connection, settings: PostgresSettings) -> Check:
    tables = [row[0] for row in db.execute(_UNREADABLE, (list(settings.all_publications),))]
    if not tables:
        return Check("select-privilege", True, "the published tables can be read")
    fix = f"as their owner: GRANT SELECT ON {', '.join(tables)} TO {quoted(db.info.user)};"
    return Check("select-privilege", False, f"published tables cannot be read: {', '.join(tables)}", fix)


def _publications(db: Connection, settings: PostgresSettings) -> Check:
    existing = {row[0] for row in db.execute("SELECT pubname FROM pg_publication")}
    absent = [name for name in settings.data_publications if name not in existing]
    message = f"{', '.join(absent)} will be made" if absent else f"{', '.join(settings.data_publications)} is there"
    return Check("publication", True, message)


def _announcements(db: Connection) -> Check:
    row = db.execute(_ROLE).fetchone()
    if has_triggers(db) or (row is not None and row[2]):
        return Check("schema-changes", True, "announced by event triggers")
    return Check("schema-changes", True, "looked for every second, since only a superuser can make event triggers")


def _retention(db: Connection) -> Check:
    limit = _setting(db, "max_slot_wal_keep_size")
    if limit == "-1":
        return Check("retained-wal", True, "unlimited: watch the disk, or set max_slot_wal_keep_size")
    return Check(
        "retained-wal",
        True,
        f"up to {limit}; a pipeline that is down for longer reads the database again",
    )
