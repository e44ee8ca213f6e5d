"""The page about several stores: its file is understood, and its commands run over two databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.docs.fences import block, commands, configuration
from tests.support.reader import Reader

PAGE = "docs/how-to/many-stores.md"
TWO = """
[sources.crm]
adapter = "sqlite"
set = { path = "crm.db" }

[sources.notes]
adapter = "sqlite"
prefix = "my_"
set = { path = "notes.db" }
"""


def test_the_file_is_understood() -> None:
    sources = configuration(block(PAGE, "[sources.crm]")).sources
    assert [source.adapter for source in sources.values()] == ["postgres", "kafka", "spark-tables", "sqlite"]


def test_the_commands_know_both_sources(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "work")
    for file, table in (("crm.db", "user"), ("notes.db", "note")):
        with closing(sqlite3.connect(reader.folder / file)) as connection, connection:
            connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
            connection.execute(f"INSERT INTO {table} VALUES (1)")
    (reader.folder / "changesource.toml").write_text(TWO)
    doctor, serve, inspect, verify, check = commands(block(PAGE, "changesource doctor"))
    assert "no table is in two of the sources" in " ".join(reader.run(doctor).split())
    with reader.serve(serve):
        shown = reader.run(inspect)
        assert "source-crm" in shown
        assert "my_note" in shown
        compared = reader.run(verify)
        assert "upstream crm" in compared
        assert "upstream notes" in compared
        assert "broken" not in reader.run(check)
