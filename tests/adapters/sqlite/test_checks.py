"""What `doctor` says about a database, good and bad."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.sqlite import SqliteAdapter
from changesource_sdk.adapter import Check, Examining
from changesource_sdk.errors import AdapterError


def examined(path: str, **settings: str) -> dict[str, Check]:
    adapter = SqliteAdapter(path, **settings)
    assert isinstance(adapter, Examining)
    return {check.name: check for check in adapter.examine()}


def test_a_database_that_can_be_followed_is_told_as_such_and_left_as_it_is(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE issue (id TEXT PRIMARY KEY, raw BLOB)")
    before = db.execute("PRAGMA schema_version").fetchone()
    found = examined(path)
    assert all(check.ok and not check.fix for check in found.values())
    assert found["tables"].message == "followed: issue"
    assert found["journal-mode"].message == "the journal mode is wal"
    assert "issue.raw" in found["columns"].message
    assert db.execute("PRAGMA schema_version").fetchone() == before


def test_tables_that_are_left_out_are_told_with_the_reason(db: sqlite3.Connection, path: str) -> None:
    db.executescript("CREATE TABLE issue (id TEXT PRIMARY KEY); CREATE TABLE notes (text TEXT)")
    told = [check.message for check in SqliteAdapter(path).examine()]
    assert any(message.startswith("notes is left out: it has no primary key") for message in told)


@pytest.mark.parametrize(
    ("settings", "message", "fix"),
    [
        ({}, "there is no table that can be followed", "create a table"),
        ({"tables": "isue"}, "table isue, asked for by the setting `tables`, is no table", "setting `tables`"),
    ],
)
def test_a_database_without_what_is_wanted_is_told_with_the_fix(
    db: sqlite3.Connection, path: str, settings: dict[str, str], message: str, fix: str
) -> None:
    db.execute("CREATE VIEW seen AS SELECT 1")
    found = examined(path, **settings)["tables"]
    assert not found.ok
    assert message in found.message
    assert fix in found.fix


def test_a_database_that_cannot_be_written_is_told(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE issue (id TEXT PRIMARY KEY)")
    Path(path).chmod(0o444)
    # Root may write anywhere; without these capabilities it is bound by permissions like everyone else.
    wrapper = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    code = "import sys; from adapters.sqlite import SqliteAdapter; print(SqliteAdapter(sys.argv[1]).examine()[0])"
    told = subprocess.run([*wrapper, sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert "ok=False" in told.stdout
    assert f"{path} cannot be written" in told.stdout


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="there is no database file"):
        examined(str(tmp_path / "none.db"))
