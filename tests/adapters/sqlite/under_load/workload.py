"""A seeded stream of row and schema changes, as an application and its migrations would make them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable

from tests.adapters.sqlite.under_load.consumer import tables_of

SHAPES = (
    "CREATE TABLE {t} (id INTEGER PRIMARY KEY, a TEXT, n INTEGER)",
    "CREATE TABLE {t} (id TEXT PRIMARY KEY, a TEXT, n INTEGER, r REAL)",
    "CREATE TABLE {t} (id TEXT PRIMARY KEY COLLATE NOCASE, a TEXT)",
    "CREATE TABLE {t} (id INTEGER NOT NULL, part TEXT NOT NULL, a TEXT, PRIMARY KEY (part, id)) WITHOUT ROWID",
    "CREATE TABLE {t} (id INTEGER PRIMARY KEY, email TEXT UNIQUE, a TEXT)",
    "CREATE TABLE {t} (id INTEGER PRIMARY KEY, x INTEGER NOT NULL, y TEXT COLLATE NOCASE, a TEXT, UNIQUE (x, y))",
    "CREATE TABLE {t} (code TEXT NOT NULL UNIQUE, a TEXT, n INTEGER)",
    "CREATE TABLE {t} (id INTEGER PRIMARY KEY, n INTEGER, g INTEGER GENERATED ALWAYS AS (n % 100) VIRTUAL) STRICT",
)
COLUMN_TYPES = ("INTEGER", "TEXT", "REAL", "TEXT DEFAULT 'née'", "INTEGER NOT NULL DEFAULT 7", "REAL DEFAULT -1.5")
ODD_DEFAULTS = ("TEXT DEFAULT 'it''s'", "TEXT DEFAULT 12", "INTEGER DEFAULT 0x10", "REAL DEFAULT 1e3")
NAMES = ("item", "Ünï cödé", 'quo"ted', "select", "crm.people", "MiXed")
TEXTS = ("a", "A", "b", "B", "é", "", "it's", "\x00", "𝒳", "12", "1e5", "null")
NUMBERS = (0, 1, 2, 3, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Workload:
    """Every step is legal or refused by SQLite; what it did is remembered in `log` for a failing seed.

    `free_to_drop`: no column may be kept from being dropped by a trigger that is not the application's own.
    """

    def __init__(self, db: sqlite3.Connection, seed: int, free_to_drop: bool = True) -> None:
        self.db = db
        self.free_to_drop = free_to_drop
        self.rng = random.Random(seed)
        self.log: list[str] = []

    def transaction(self, schema_share: float = 0.15) -> None:
        """A few statements, committed together or rolled back together."""
        self.run("BEGIN IMMEDIATE")
        for _ in range(self.rng.choice((1, 1, 2, 5, 12))):
            self.rng.choice(self.schema_steps() if self.rng.random() < schema_share else self.row_steps())()
        self.run("ROLLBACK" if self.rng.random() < 0.1 else "COMMIT")

    def run(self, sql: str, *values: object) -> None:
        """One statement; what SQLite refuses leaves no trace."""
        try:
            self.db.execute(sql, values)
            self.log.append(f"{sql} {values or ''}")
        except sqlite3.Error as error:
            self.log.append(f"-- {error}: {sql} {values or ''}")
            if "locked" in str(error) or ("trigger" in str(error) and self.free_to_drop):
                raise

    def row_steps(self) -> list[Callable[[], None]]:
        return (
            [self.insert] * 4
            + [self.replace] * 2
            + [self.update] * 4
            + [self.delete] * 2
            + [self.update_all, self.clear]
        )

    def schema_steps(self) -> list[Callable[[], None]]:
        steps = [self.create_table, self.drop_table, self.rename_table, self.swap_tables, self.rebuild_table]
        steps += [self.add_column, self.drop_column, self.rename_column, self.swap_columns, self.drop_and_add_column]
        return [*steps, self.create_index, self.drop_index, self.add_column, self.rename_column, self.create_view]

    def table(self) -> str:
        names = tables_of(self.db)
        if not names:
            self.create_table()
            names = tables_of(self.db)
        return self.rng.choice(names)

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Names and types of the columns that can be written."""
        listed = self.db.execute("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))
        return [(name, declared) for name, declared in listed]

    def value(self, declared: str) -> object:
        if declared.startswith("INT"):
            return self.rng.choice(NUMBERS[:5] * 4 + NUMBERS)
        if declared == "REAL":
            return self.rng.choice((0.1, 1.5, -2.25, 1e300, 5e-324, 3.0))
        return self.rng.choice(TEXTS)

    def values(self, table: str) -> tuple[str, str, list[object]]:
        columns = self.columns(table)
        listed = ", ".join(quoted(name) for name, _ in columns)
        values = [None if self.rng.random() < 0.05 and n > 0 else self.value(t) for n, (_, t) in enumerate(columns)]
        return listed, ", ".join("?" * len(columns)), values

    def insert(self) -> None:
        table = self.table()
        listed, marks, values = self.values(table)
        action = self.rng.choice(("INSERT", "INSERT OR IGNORE"))
        self.run(f"{action} INTO {quoted(table)} ({listed}) VALUES ({marks})", *values)

    def replace(self) -> None:
        table = self.table()
        listed, marks, values = self.values(table)
        self.run(f"REPLACE INTO {quoted(table)} ({listed}) VALUES ({marks})", *values)

    def update(self) -> None:
        table = self.table()
        (name, declared), (where, kind) = self.rng.choice(self.columns(table)), self.rng.choice(self.columns(table))
        action = self.rng.choice(("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"))
        sql = f"{action} {quoted(table)} SET {quoted(name)} = ? WHERE {quoted(where)} = ?"
        self.run(sql, self.value(declared), self.value(kind))

    def update_all(self) -> None:
        table = self.table()
        name, declared = self.columns(table)[-1]
        self.run(f"UPDATE {quoted(table)} SET {quoted(name)} = ?", self.value(declared))

    def delete(self) -> None:
        table = self.table()
        name, declared = self.rng.choice(self.columns(table))
        self.run(f"DELETE FROM {quoted(table)} WHERE {quoted(name)} = ?", self.value(declared))

    def clear(self) -> None:
        self.run(f"DELETE FROM {quoted(self.table())}")

    def new_name(self) -> str:
        return self.rng.choice(NAMES) + self.rng.choice(("", "", "2"))

    def create_table(self) -> None:
        self.run(self.rng.choice(SHAPES).format(t=quoted(self.new_name())))

    def drop_table(self) -> None:
        if self.rng.random() < 0.5:
            self.run(f"DROP TABLE {quoted(self.table())}")

    def rename_table(self) -> None:
        self.run(f"ALTER TABLE {quoted(self.table())} RENAME TO {quoted(self.new_name())}")

    def swap_tables(self) -> None:
        one, other = self.table(), self.table()
        if one != other:
            for old, new in ((one, "third"), (other, one), ("third", other)):
                self.run(f"ALTER TABLE {quoted(old)} RENAME TO {quoted(new)}")

    def rebuild_table(self) -> None:
        """The way SQLite's manual gives for changes that ALTER TABLE cannot make."""
        table = self.table()
        self.run("CREATE TABLE rebuilt (id INTEGER PRIMARY KEY, label TEXT)")
        first = quoted(self.columns(table)[0][0])
        self.run(f"INSERT INTO rebuilt (label) SELECT CAST({first} AS TEXT) FROM {quoted(table)}")
        self.run(f"DROP TABLE {quoted(table)}")
        self.run(f"ALTER TABLE rebuilt RENAME TO {quoted(table)}")

    def add_column(self) -> None:
        name = self.rng.choice(("p", "q", "Q r", "s", 'd"t'))
        declared = self.rng.choice(COLUMN_TYPES + ODD_DEFAULTS)
        self.run(f"ALTER TABLE {quoted(self.table())} ADD COLUMN {quoted(name)} {declared}")

    def drop_column(self) -> None:
        table = self.table()
        name, _ = self.rng.choice(self.columns(table))
        self.run(f"ALTER TABLE {quoted(table)} DROP COLUMN {quoted(name)}")

    def drop_and_add_column(self) -> None:
        table = self.table()
        name, declared = self.columns(table)[-1]
        self.run(f"ALTER TABLE {quoted(table)} DROP COLUMN {quoted(name)}")
        self.run(f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(name)} {declared}")

    def rename_column(self) -> None:
        table = self.table()
        name, _ = self.rng.choice(self.columns(table))
        new = self.rng.choice(("p", "q", "renamed", "Ä"))
        self.run(f"ALTER TABLE {quoted(table)} RENAME COLUMN {quoted(name)} TO {quoted(new)}")

    def swap_columns(self) -> None:
        table = self.table()
        (one, _), (other, _) = self.columns(table)[0], self.columns(table)[-1]
        if one != other:
            for old, new in ((one, "third"), (other, one), ("third", other)):
                self.run(f"ALTER TABLE {quoted(table)} RENAME COLUMN {quoted(old)} TO {quoted(new)}")

    def create_index(self) -> None:
        table = self.table()
        columns = self.rng.sample(self.columns(table), k=min(2, len(self.columns(table))))
        kind = self.rng.choice(("", "", "UNIQUE "))
        listed = ", ".join(f"{quoted(name)} {self.rng.choice(('ASC', 'DESC'))}" for name, _ in columns)
        self.run(f"CREATE {kind}INDEX {quoted(f'ix{self.rng.randrange(6)}')} ON {quoted(table)} ({listed})")

    def drop_index(self) -> None:
        names = [
            name for (name,) in self.db.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql <> ''")
        ]
        if names:
            self.run(f"DROP INDEX {quoted(self.rng.choice(names))}")

    def create_view(self) -> None:
        table = self.table()
        self.run("DROP VIEW IF EXISTS shown")
        self.run(f"CREATE VIEW shown AS SELECT 1 FROM {quoted(table)}")
