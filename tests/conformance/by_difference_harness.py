"""`ByDifference` under the suite: a SQLite database that keeps no log, of which only the rows can be listed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from changesource_sdk import ByDifference, Column, JsonText, Row, Table
from changesource_sdk.by_difference.digest_file import DigestFile
from tests.conformance.sqlite_harness import SqliteHarness

TYPES = {"INTEGER": "int8", "TEXT": "text", "REAL": "float8", "BOOLEAN": "bool", "JSON": "json", "BLOB": "bytea"}


class ListedDatabase(ByDifference):
    """Lists the tables of a database file; each listing is one query, so one state of its table."""

    poll_interval = 0.05

    def __init__(self, path: str, state: str) -> None:
        super().__init__(state)
        self.path = path

    def tables(self) -> Sequence[Table]:
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
            return [_table(db, name) for name in names]

    def rows(self, table: str) -> Iterator[Row]:
        kinds = {column.name: column.data_type for each in self.tables() for column in each.columns}
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            db.row_factory = sqlite3.Row
            for row in db.execute(f"SELECT * FROM {table}"):
                yield {name: _value(kinds.get(name), row[name]) for name in row.keys()}  # noqa: SIM118


def _table(db: sqlite3.Connection, name: str) -> Table:
    columns = db.execute(f"SELECT name, type FROM pragma_table_info('{name}')").fetchall()
    return Table(name, [Column(column, TYPES.get(kind, kind)) for column, kind in columns])


def _value(kind: str | None, value: object) -> object:
    return JsonText(value) if kind == "json" and isinstance(value, str) else value


class ByDifferenceHarness(SqliteHarness):
    adapter = ListedDatabase

    def create(self, folder: Path) -> None:
        super().create(folder)
        self.state = folder / "digests"

    def settings(self) -> Mapping[str, object]:
        return {"path": str(self.path), "state": str(self.state)}

    def forget(self) -> None:
        """As by a lost disk: the digests are all the history there is."""
        shutil.rmtree(self.state)

    def retained(self) -> int:
        count = 0
        for path in self.state.glob("*/digests.sqlite"):
            with DigestFile(path) as file:
                count += file.retained()
        return count
