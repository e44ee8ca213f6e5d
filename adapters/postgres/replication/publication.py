"""Creates publications that do not exist.

A publication that was followed before and was dropped is only created again if it is the default one: the content of
any other is the user's choice.
"""

from __future__ import annotations

from adapters.postgres.catalog.model import STATE_SCHEMA
from adapters.postgres.connection import Connection, address, quoted
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import AdapterError

_ABSENT = "SELECT name FROM unnest(%s::text[]) name WHERE name NOT IN (SELECT pubname FROM pg_publication)"
_IS_SUPERUSER = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
_OWN_TABLES = """SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
AND pg_has_role(c.relowner, 'USAGE') ORDER BY 1"""
_FOLLOWED = f"SELECT publications FROM {STATE_SCHEMA}.pipelines WHERE slot = %s"
_OPTIONS = "WITH (publish_via_partition_root = true)"


def ensure_publications(db: Connection, settings: PostgresSettings) -> list[str]:
    """Create the missing publications of the user's tables; returns a sentence about each."""
    absent = [row[0] for row in db.execute(_ABSENT, (list(settings.data_publications),))]
    for name in set(absent) & _followed(db, settings):
        if name != settings.default_publication:
            raise AdapterError(
                "publication-dropped",
                f"the publication {name} was dropped while it was followed",
                where=address(settings.dsn),
                fix=f"CREATE PUBLICATION {quoted(name)} FOR TABLE … {_OPTIONS}; the database is then read again",
            )
    return [_make(db, settings, name) for name in absent]


def _followed(db: Connection, settings: PostgresSettings) -> set[str]:
    """The publications that this pipeline has followed before."""
    if db.execute("SELECT to_regclass(%s)", (f"{STATE_SCHEMA}.pipelines",)).fetchone() == (None,):
        return set()
    row = db.execute(_FOLLOWED, (settings.slot,)).fetchone()
    return set(row[0]) if row else set()


def _make(db: Connection, settings: PostgresSettings, name: str) -> str:
    if db.execute(_IS_SUPERUSER).fetchone() == (True,):
        db.execute(f"CREATE PUBLICATION {quoted(name)} FOR TABLES IN SCHEMA public {_OPTIONS}".encode())
        return f"made the publication {name} for all tables of schema public, also those to come"
    tables = [f"public.{quoted(row[0])}" for row in db.execute(_OWN_TABLES)]
    if not tables:
        raise AdapterError(
            "nothing-to-publish",
            f"there is no publication {name}, and this role owns no table of schema public",
            where=address(settings.dsn),
            fix=f"as the tables' owner or a superuser: CREATE PUBLICATION {quoted(name)} FOR TABLE … {_OPTIONS};",
        )
    db.execute(f"CREATE PUBLICATION {quoted(name)} FOR TABLE {', '.join(tables)} {_OPTIONS}".encode())
    return (
        f"made the publication {name} for this role's {len(tables)} tables of schema public; "
        f"add others with ALTER PUBLICATION {quoted(name)} ADD TABLE …"
    )
