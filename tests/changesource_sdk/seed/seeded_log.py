"""A log in a state directory, seeds of it, and what is in their files."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from changesource_sdk.changelog.store import LogStore
from changesource_sdk.seed.build import SeedProgress
from changesource_sdk.seed.lanes import LocalSeedLane, SeedLane
from changesource_sdk.seed.make import MadeSeed, Target, make_seed
from changesource_sdk.seed.plan import SeedOptions
from changesource_sdk.seed.publish import SeedFolder

OPTIONS = SeedOptions()


def seed_of(
    store: LogStore,
    replica: Path | None = None,
    folder: Path | None = None,
    *,
    lane: SeedLane | None = None,
    options: SeedOptions = OPTIONS,
    keep: int = 2,
) -> MadeSeed:
    """Make a seed as the command does."""
    target = Target(replica, SeedFolder(str(folder)) if folder else None, keep)
    work = store.layout.root / "seed.building"
    return make_seed(store, lane or LocalSeedLane(), options, target, work, SeedProgress())


def query(path: Path, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql, parameters).fetchall()


def tables_of(path: Path) -> list[str]:
    names = query(path, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
    return [str(name) for (name,) in names if not str(name).startswith(("_zero.", "zero"))]


def contents(path: Path) -> dict[str, list[dict[str, object]]]:
    """Rows of the upstream's tables, without the version, as `SqliteReplica.contents` gives them."""
    rows: dict[str, list[dict[str, object]]] = {}
    with closing(sqlite3.connect(path)) as connection:
        for name in tables_of(path):
            cursor = connection.execute(f'SELECT * FROM "{name}"')
            columns = [each[0] for each in cursor.description]
            of_table = [dict(zip(columns, row, strict=True)) for row in cursor]
            for row in of_table:
                del row["_0_version"]
            rows[name] = sorted(of_table, key=lambda row: repr(sorted(row.items())))
    return rows


def indexes(path: Path) -> set[tuple[object, ...]]:
    sql = "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    return {row for row in query(path, sql) if not str(row[1]).startswith("zero")}
