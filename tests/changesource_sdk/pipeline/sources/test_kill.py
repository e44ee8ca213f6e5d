"""Several sources in a pipeline process that is killed again and again: no row is lost or doubled, in no source."""

from __future__ import annotations

import random
import sqlite3
import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.settings import PipelineSettings, command_line
from changesource_sdk.pipeline.source import SourceSpec
from tests.changesource_sdk.pipeline.runner_fixtures import Watched
from tests.changesource_sdk.pipeline.sources.source_fixtures import rows_in_log
from tests.support.tools import REPOSITORY

SEED = 17
KILLS = 2
SOURCES = ("crm", "shop")


def insert(path: Path, table: str, numbers: range) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for number in numbers:
            with connection:
                connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (number, "x" * 100))


def _has_row(seen: Watched, number: int) -> bool:
    return number in rows_in_log(seen.store).get("crm_row", set())


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_every_source_continues_after_its_own_position(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    files = {name: tmp_path / f"{name}.db" for name in SOURCES}
    for name, path in files.items():
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"CREATE TABLE {name}_row (id INTEGER PRIMARY KEY, body TEXT)")
        insert(path, f"{name}_row", range(20))
    state = tmp_path / "state"
    specs = [SourceSpec("adapters.sqlite:SqliteAdapter", {"path": str(files[name])}, name=name) for name in SOURCES]
    command = command_line(PipelineSettings(None, sources=specs), state)
    seen = Watched(SqliteLogStore(state))
    expected = {f"{name}_row": set(range(20)) for name in SOURCES}
    for attempt in range(KILLS + 1):
        child = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=REPOSITORY)
        try:
            seen.until_generation(1)
            for name in SOURCES:
                first = max(expected[f"{name}_row"]) + 1
                numbers = range(first, first + rng.randrange(20, 40))
                insert(files[name], f"{name}_row", numbers)
                expected[f"{name}_row"] |= set(numbers)
            if attempt < KILLS:
                # In the midst of it: some of the rows are in the log, others are not.
                some = rng.choice(sorted(expected["crm_row"])[-15:])
                seen.until(partial(_has_row, seen, some), f"row {some}")
            else:
                seen.until(lambda: rows_in_log(seen.store) == expected, "all rows")
        finally:
            child.kill()
            child.wait()
    stored = seen.log.read_after("00", 1 << 30)
    seen.close()
    inserts = sum(b"".join(each.chunks()).count(b'"tag":"insert"') for each in stored)
    assert inserts == sum(map(len, expected.values())), "a row was stored twice"
    assert seen.log.state().generation == 1
