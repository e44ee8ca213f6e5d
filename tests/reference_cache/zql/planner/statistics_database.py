"""The database of `fixtures/cost_questions.json`, and official histograms for SQLite builds that make none."""

import json
import sqlite3
from typing import Any

from tests.reference_cache.zql.official import FIXTURES

QUESTIONS: dict[str, Any] = json.loads((FIXTURES / "cost_questions.json").read_text())
OFFICIAL: dict[str, Any] = json.loads((FIXTURES / "official_costs.json").read_text())


def analyzed_database() -> sqlite3.Connection:
    """The filled tables with the statistics this SQLite makes; no histograms."""
    connection = sqlite3.connect(":memory:")
    for statement in QUESTIONS["statements"]:
        connection.execute(statement)
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat4'").fetchone():
        connection.execute("DELETE FROM sqlite_stat4")
    return connection


def add_official_histograms(connection: sqlite3.Connection) -> None:
    """Put the histograms of the official SQLite in place, as in a replica it has analysed."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat4'").fetchone():
        connection.execute("CREATE TABLE histogram (tbl, idx, neq, nlt, ndlt, sample)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET name = 'sqlite_stat4', tbl_name = 'sqlite_stat4',"
            " sql = 'CREATE TABLE sqlite_stat4(tbl, idx, neq, nlt, ndlt, sample)' WHERE name = 'histogram'"
        )
        connection.execute("PRAGMA writable_schema = RESET")
    rows = [
        (row["tbl"], row["idx"], row["neq"], row["nlt"], row["ndlt"], bytes.fromhex(row["sample"]))
        for row in OFFICIAL["stat4"]
    ]
    connection.executemany("INSERT INTO sqlite_stat4 VALUES (?, ?, ?, ?, ?, ?)", rows)
