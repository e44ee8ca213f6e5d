"""The ledger's file: whoever comes first makes it, whoever comes next changes nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from protocol.ledger_file import DEFAULT_SCHEMA, STATEMENTS


def make(path: Path, schema: str) -> tuple[str, str, int]:
    """Make the file as either side does; its identity, its schema and how far it is settled."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        *statements, last = STATEMENTS
        for statement in statements:
            db.execute(statement)
        db.execute(last, (schema,))
        (found,) = db.execute("SELECT id, schema, settled FROM ledger").fetchall()
        return found[0], found[1], found[2]


def test_making_it_again_changes_nothing(tmp_path: Path) -> None:
    made = make(tmp_path / "ledger.db", DEFAULT_SCHEMA)
    assert made[1:] == (DEFAULT_SCHEMA, 0)
    assert make(tmp_path / "ledger.db", "other_1") == made


def test_two_files_can_be_told_apart(tmp_path: Path) -> None:
    assert make(tmp_path / "one.db", DEFAULT_SCHEMA)[0] != make(tmp_path / "other.db", DEFAULT_SCHEMA)[0]


def test_an_entry_confirms_or_forgets_and_nothing_else(tmp_path: Path) -> None:
    make(tmp_path / "ledger.db", DEFAULT_SCHEMA)
    add = "INSERT INTO entry (kind, client_group, client, mutation, positions) VALUES (?, 'g', 'c', 1, '[]')"
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as db:
        db.execute(add, ("confirm",))
        db.execute(add, ("forget",))
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            db.execute(add, ("undo",))
        assert db.execute("SELECT sequence, kind FROM entry").fetchall() == [(1, "confirm"), (2, "forget")]
