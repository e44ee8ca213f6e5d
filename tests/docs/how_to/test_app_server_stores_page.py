"""The page about stores: its dialect makes the statements it says, and its tables are those that the stores create."""

import re
import sqlite3
from pathlib import Path
from typing import Any

from reference_cache.app_server.stores import mysql
from reference_cache.app_server.stores.sqlite import create_system_tables
from tests.docs.fences import ROOT, blocks, execute

PAGE = "docs/how-to/app-server-stores.md"


def test_the_page_s_dialect_makes_its_statements() -> None:
    names: dict[str, Any] = {"__name__": "a_page"}
    for text in blocks(PAGE, "python"):
        execute(text, names)
    assert "statements" in names


def test_the_page_lists_the_columns_that_are_created(tmp_path: Path) -> None:
    listed = set(re.findall(r"`(\w+)`", (ROOT / PAGE).read_text()))
    with sqlite3.connect(tmp_path / "app.db") as db:
        create_system_tables(db)
        for table in ("clients", "mutations"):
            columns = [name for (name,) in db.execute(f"SELECT name FROM pragma_table_info('zero_0.{table}')")]
            assert set(columns) <= listed
            assert [name for name in columns if name not in mysql._TABLES[table]] == []
