"""The checks of `changesource doctor`: can the database be captured, and which tables are synced? Only reads."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from adapters.sqlite.catalog.introspect import find_tables
from adapters.sqlite.settings import Selection
from changesource_sdk import Check, ConfigurationError


def examine(db: sqlite3.Connection, path: str, selection: Selection) -> Iterator[Check]:
    yield _writable(Path(path))
    yield _journal(db)
    yield from _tables(db, selection)


def _writable(path: Path) -> Check:
    # SQLite creates its journal in the folder of the file, so both must be writable.
    refused = [str(each) for each in (path, path.resolve().parent) if not os.access(each, os.W_OK)]
    if not refused:
        return Check("write-access", True, f"{path} can be written: triggers are kept in it")
    fix = "give this user write access to the file and its folder: triggers are kept in it"
    return Check("write-access", False, f"{' and '.join(refused)} cannot be written", fix)


def _journal(db: sqlite3.Connection) -> Check:
    (mode,) = db.execute("PRAGMA journal_mode").fetchone()
    advice = "" if mode == "wal" else "; readers and writers wait for each other, which `PRAGMA journal_mode=WAL` ends"
    return Check("journal-mode", True, f"the journal mode is {mode}{advice}")


def _tables(db: sqlite3.Connection, selection: Selection) -> Iterator[Check]:
    try:
        syncable = find_tables(db, selection)
    except ConfigurationError as error:
        yield Check("tables", False, error.message, error.fix)
        return
    if syncable.tables:
        yield Check("tables", True, f"followed: {', '.join(table.name for table in syncable.tables)}")
    else:
        fix = "create a table with a primary key, or correct the settings `path`, `tables` and `exclude`"
        yield Check("tables", False, "there is no table that can be followed", fix)
    for name, reason in syncable.skipped.items():
        yield Check("tables", True, f"{name} is left out: {reason}")
    if syncable.unsynced_columns:
        yield Check(
            "columns", True, f"left out, since clients cannot hold them: {', '.join(syncable.unsynced_columns)}"
        )
