"""Merges pieces into the tables of the replica file, each in key order.

Runs that do not overlap are appended one after the other: SQLite then copies rows without decoding them. Runs that
overlap are merged row by row. Either way the memory is that of one row per run.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.schema import Table
from changesource_sdk.seed.pieces import Rows, run_name
from changesource_sdk.seed.rows import Parameters, comparable, sort_key
from service_kit.sqlite import connect, quoted


@dataclass(frozen=True, slots=True)
class Run:
    """Sorted rows in a table of a piece. `first` and `last` are the keys of its ends, comparable; () without a key."""

    piece: Path
    name: str
    first: object
    last: object


def append_pieces(connection: sqlite3.Connection, table: Table, pieces: Sequence[Path], done: Rows) -> None:
    """Append the rows of all pieces of a table. `connection` is in autocommit, and the table has no index yet."""
    runs = [run for piece in pieces for run in _runs(piece, table)]
    for group in clusters(runs) if table.key else ([run] for run in runs):
        before = _count(connection)
        if len(group) == 1:
            _copy(connection, table, group[0])
        else:
            _merge(connection, table, group)
        done(_count(connection) - before)


def clusters(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Group runs in key order; runs of two groups do not overlap."""
    group: list[Run] = []
    last: object = None
    for run in sorted(runs, key=lambda each: each.first):  # type: ignore[arg-type, return-value]
        if group and not last < run.first:  # type: ignore[operator]
            group.append(run)
            last = max(last, run.last)  # type: ignore[call-overload]
            continue
        if group:
            yield group
        group, last = [run], run.last
    if group:
        yield group


def _runs(piece: Path, table: Table) -> Iterator[Run]:
    key = sort_key(table)
    with closing(connect(piece, mode="ro")) as connection:
        names = connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").fetchone()[0]
        for name in map(run_name, range(names)):
            # Two statements: together, SQLite would sort.
            ends = [
                connection.execute(f"SELECT * FROM {name} ORDER BY rowid {order} LIMIT 1").fetchone()
                for order in ("ASC", "DESC")
            ]
            first, last = ((), ()) if key is None else (comparable(key(ends[0])), comparable(key(ends[1])))
            yield Run(piece, name, first, last)


def _copy(connection: sqlite3.Connection, table: Table, run: Run) -> None:
    connection.execute("ATTACH ? AS piece", (str(run.piece),))
    try:
        connection.execute(f"INSERT INTO main.{quoted(table.full_name)} SELECT * FROM piece.{run.name}")
    finally:
        connection.execute("DETACH piece")


def _merge(connection: sqlite3.Connection, table: Table, group: Sequence[Run]) -> None:
    key = sort_key(table)
    assert key is not None
    with ExitStack() as stack:
        sources: list[Iterator[Parameters]] = []
        for run in group:
            reader = stack.enter_context(closing(connect(run.piece, mode="ro")))
            sources.append(reader.execute(f"SELECT * FROM {run.name} ORDER BY rowid"))
        merged = heapq.merge(*sources, key=lambda row: comparable(key(row)))  # type: ignore[arg-type, return-value]
        marks = ", ".join("?" * (len(table.columns) + 1))
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {quoted(table.full_name)} VALUES ({marks})", merged)
        connection.execute("COMMIT")


def _count(connection: sqlite3.Connection) -> int:
    return connection.total_changes
