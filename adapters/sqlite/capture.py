"""What the adapter keeps in the user's database: triggers, recorded keys and schema versions.

`install` brings all three up to date with the current tables, in one write transaction. The adapter calls it at the
start and whenever SQLite's schema counter has changed. From then on every change of a synced table is recorded, and the
catalog of those tables is stored as a numbered schema version. Versions and recorded keys are kept until they are
acknowledged.

Two tables are added to the database, `_changesource_changes` and `_changesource_schema`. The newest row of each is
never deleted: it holds the last number, so numbers only increase.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from dataclasses import dataclass, replace

from adapters.sqlite.catalog.identity import Trace, recognise
from adapters.sqlite.catalog.introspect import OWN, SyncableTables, find_tables, quoted, schema_objects
from adapters.sqlite.catalog.model import Catalog
from adapters.sqlite.connection import write_transaction
from adapters.sqlite.settings import Selection
from adapters.sqlite.triggers import CHANGES, ESSENTIAL, key_columns, listed_columns, parse_name, table_triggers
from changesource_sdk.toolkit import NOT_SYNCED, StandingWarnings

SCHEMA = f"{OWN}schema"
PRUNE_ROWS = 10_000

log = logging.getLogger("changesource.adapters.sqlite")
_not_synced = StandingWarnings(log, NOT_SYNCED)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A stored catalog and its number."""

    number: int
    catalog: Catalog


def install(db: sqlite3.Connection, selection: Selection) -> SchemaVersion:
    """Bring triggers and catalog up to date with the current tables; returns the current schema version."""
    current = _fitting_version(db, selection)
    if current is not None:
        return current
    with write_transaction(db):
        _create_tables(db)
        last = latest_version(db) or SchemaVersion(0, Catalog(origin=secrets.token_hex(8)))
        syncable = find_tables(db, selection)
        triggers = _own_triggers(db)
        catalog = recognise(last.catalog, syncable.tables, _traces(triggers), schema_objects(db), schema_cookie(db))
        _widen(db, catalog.key_width)
        _align_triggers(db, triggers, catalog)
        version = _store(db, last, replace(catalog, cookie=schema_cookie(db), selection=repr(selection)))
    _report(syncable)
    return version


def _fitting_version(db: sqlite3.Connection, selection: Selection) -> SchemaVersion | None:
    """The newest version if schema and settings are unchanged. Needs no write lock, unlike the rest of `install`."""
    db.execute("BEGIN")
    try:
        is_installed = db.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (SCHEMA,)).fetchone()
        last = latest_version(db) if is_installed else None
        fits = last and last.catalog.cookie == schema_cookie(db) and last.catalog.selection == repr(selection)
        return last if fits else None
    finally:
        db.rollback()


def schema_cookie(db: sqlite3.Connection) -> int:
    """SQLite's schema counter; every schema statement adds one."""
    return int(db.execute("PRAGMA schema_version").fetchone()[0])


def latest_version(db: sqlite3.Connection) -> SchemaVersion | None:
    """The newest schema version, if the capture was ever installed."""
    row = db.execute(f"SELECT version, catalog FROM {SCHEMA} ORDER BY version DESC LIMIT 1").fetchone()
    return SchemaVersion(row[0], Catalog.from_json(row[1])) if row else None


def stored_version(db: sqlite3.Connection, number: int) -> SchemaVersion | None:
    """None if that version is already pruned."""
    row = db.execute(f"SELECT catalog FROM {SCHEMA} WHERE version = ?", (number,)).fetchone()
    return SchemaVersion(number, Catalog.from_json(row[0])) if row else None


def recorded_range(db: sqlite3.Connection) -> tuple[int, int]:
    """The first and the last number of the recorded keys; (0, 0) if there are none."""
    row = db.execute(f"SELECT min(seq), max(seq) FROM {CHANGES}").fetchone()
    return (row[0] or 0, row[1] or 0)


def prune(db: sqlite3.Connection, sequence: int, version: int, patience: float | None = None) -> None:
    """Delete the recorded keys and schema versions before these.

    Each write transaction deletes at most `PRUNE_ROWS` keys, so that the application's writers hardly wait. Raises
    `sqlite3.OperationalError` if the write lock is not free within `patience` seconds.
    """
    doomed = f"SELECT seq FROM {CHANGES} WHERE seq < ? ORDER BY seq LIMIT {PRUNE_ROWS}"
    while True:
        with write_transaction(db, patience):
            count = db.execute(f"DELETE FROM {CHANGES} WHERE seq IN ({doomed})", (sequence,)).rowcount
            if count < PRUNE_ROWS:
                db.execute(f"DELETE FROM {SCHEMA} WHERE version < ?", (version,))
                return


def uninstall(db: sqlite3.Connection) -> None:
    """Drop the triggers and both tables."""
    with write_transaction(db):
        for name in _own_triggers(db):
            db.execute(f"DROP TRIGGER {quoted(name)}")
        for table in (CHANGES, SCHEMA):
            db.execute(f"DROP TABLE IF EXISTS {table}")


def _create_tables(db: sqlite3.Connection) -> None:
    db.execute(f"CREATE TABLE IF NOT EXISTS {CHANGES} (seq INTEGER PRIMARY KEY, tbl INTEGER, op INTEGER, k1)")
    db.execute(f"CREATE TABLE IF NOT EXISTS {SCHEMA} (version INTEGER PRIMARY KEY, catalog TEXT NOT NULL)")


def _own_triggers(db: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Table name and text of each of the capture's triggers, by trigger name."""
    rows = db.execute("SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger'")
    return {name: (table, sql) for name, table, sql in rows if parse_name(name)}


def _traces(triggers: dict[str, tuple[str, str]]) -> list[Trace]:
    """One trace for each table that has all essential triggers. A table that lost one has unrecorded changes."""
    kinds: dict[tuple[int, str], dict[str, str]] = {}
    for name, (table, sql) in triggers.items():
        parsed = parse_name(name)
        if parsed:
            kinds.setdefault((parsed[0], table), {})[parsed[1]] = sql
    whole = {owner: texts for owner, texts in kinds.items() if all(kind in texts for kind in ESSENTIAL)}
    return [Trace(number, table, listed_columns(texts["columns"])) for (number, table), texts in whole.items()]


def _widen(db: sqlite3.Connection, width: int) -> None:
    present = {name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (CHANGES,))}
    for column in key_columns(width):
        if column not in present:
            db.execute(f"ALTER TABLE {CHANGES} ADD COLUMN {column}")


def _align_triggers(db: sqlite3.Connection, present: dict[str, tuple[str, str]], catalog: Catalog) -> None:
    wanted = {name: sql for table in catalog.tables for name, sql in table_triggers(table).items()}
    current = {name: sql for name, (_, sql) in present.items()}
    for name in current:
        if wanted.get(name) != current[name]:
            db.execute(f"DROP TRIGGER {quoted(name)}")
    for name, sql in wanted.items():
        if current.get(name) != sql:
            db.execute(sql)


def _store(db: sqlite3.Connection, last: SchemaVersion, catalog: Catalog) -> SchemaVersion:
    # The same tables under another schema counter (after VACUUM, or a change of an unsynced table) keep their version.
    if last.number and last.catalog.tables == catalog.tables:
        if last.catalog != catalog:
            db.execute(f"UPDATE {SCHEMA} SET catalog = ? WHERE version = ?", (catalog.to_json(), last.number))
        return SchemaVersion(last.number, catalog)
    number = last.number + 1
    db.execute(f"INSERT INTO {SCHEMA} (version, catalog) VALUES (?, ?)", (number, catalog.to_json()))
    return SchemaVersion(number, catalog)


def _report(syncable: SyncableTables) -> None:
    warnings = {f"table {name}": f"table {name} is not synced: {why}" for name, why in syncable.skipped.items()}
    for column in syncable.unsynced_columns:
        why = "it holds blobs, or has no type"
        warnings[f"column {column}"] = f"column {column} is replicated but not synced to clients: {why}"
    _not_synced.set(warnings)
