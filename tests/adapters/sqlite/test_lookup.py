"""Looking keys up costs an index search each, never a scan of the table."""

import sqlite3

import pytest

from adapters.sqlite.capture import install
from adapters.sqlite.lookup import touched_query
from adapters.sqlite.settings import Selection


@pytest.mark.parametrize(
    "shape",
    [
        "(id INTEGER PRIMARY KEY, v TEXT)",
        "(id TEXT PRIMARY KEY, v TEXT)",
        "(id TEXT PRIMARY KEY COLLATE NOCASE, v TEXT)",
        "(v TEXT, n REAL, part TEXT, PRIMARY KEY (part, n DESC)) WITHOUT ROWID",
        "(v TEXT NOT NULL, part TEXT NOT NULL COLLATE RTRIM, UNIQUE (v, part))",
        "(id BOOLEAN PRIMARY KEY, v TEXT)",
    ],
)
def test_a_recorded_key_is_found_by_the_tables_own_index(db: sqlite3.Connection, shape: str) -> None:
    db.execute(f"CREATE TABLE t {shape}")
    (table,) = install(db, Selection()).catalog.tables
    plan = [step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {touched_query(table)}", (0, 9, table.id))]
    assert any(step.startswith("SEARCH t USING") and "AUTOMATIC" not in step for step in plan), plan
    assert any("SEARCH _changesource_changes USING INTEGER PRIMARY KEY" in step for step in plan), plan
