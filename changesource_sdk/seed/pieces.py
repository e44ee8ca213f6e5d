"""Pieces: rows of some spool parts of one table, in a SQLite file of their own, sorted into runs.

A piece is made by one task, anywhere. Rows are sorted by key a batch at a time; a batch that continues the order
extends the current run, any other starts a new one. Parts that are in key order, as most upstreams give them, make one
run. Memory: one batch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.snapshots import PartInfo
from changesource_sdk.errors import StateError
from changesource_sdk.pipeline.compaction.job import SpoolPart
from changesource_sdk.schema import Table
from changesource_sdk.seed.layout import PAGE_SIZE, create_table
from changesource_sdk.seed.rows import Parameters, RowDecoder, comparable, sort_key
from service_kit.private_files import private_database
from service_kit.sqlite import connect, quoted

BATCH_ROWS = 50_000
BATCH_BYTES = 32 * 1024 * 1024
"""A batch that is sorted in memory has about this many rows or bytes of frames at most."""

Rows = Callable[[int], None]
"""Called with the number of rows done since the last call."""


@dataclass(frozen=True, slots=True)
class PieceTask:
    """What one task reads and how its rows are written; picklable. `number` is the position of its rows."""

    number: int
    table: Table
    parts: tuple[SpoolPart, ...]
    version: str

    @property
    def file(self) -> str:
        """The name of the piece's file."""
        return f"part-{self.number:05d}.sqlite"

    @property
    def rows(self) -> int:
        """Rows that the piece will have."""
        return sum(each.part.rows for each in self.parts)

    def run(self, store: PartStore, done: Rows = lambda rows: None) -> PartInfo:
        """Write the piece and put it into the store, whole or not at all."""
        with store.scratch() as own:
            file = own / self.file
            count = self._write(file, done)
            with disk_errors(file):
                part = PartInfo(self.file, self.table.full_name, count, file.stat().st_size, 0)
            store.put(file, part)
        return part

    def _write(self, file: Path, done: Rows) -> int:
        count = 0
        with sqlite_errors(file), closing(scratch_database(file)) as connection:
            writer = _RunWriter(connection, self.table, self.version)
            for batch in self._batches():
                writer.add(batch)
                count += len(batch)
                done(len(batch))
            connection.execute("COMMIT")
        return count

    def _batches(self) -> Iterator[list[Parameters]]:
        decoder = RowDecoder(self.table)
        batch: list[Parameters] = []
        size = 0
        for part in self.parts:
            for block in part.blocks():
                batch += decoder.block(block)
                size += len(block)
                if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch


class _RunWriter:
    """Writes sorted batches into the tables `run_0`, `run_1`, … of one file."""

    def __init__(self, connection: sqlite3.Connection, table: Table, version: str) -> None:
        self._connection = connection
        self._table = table
        self._key = sort_key(table)
        self._version = version
        # The number of runs begun, the statement that appends to the newest, and its last key; written by `add`.
        self._runs = 0
        self._insert = ""  # see `_runs`
        self._last: object = None  # see `_runs`

    def add(self, batch: list[Parameters]) -> None:
        """Sort the batch in place and write it."""
        first, last = (None, None) if self._key is None else _sort(batch, self._key)
        if not self._runs or (self._key is not None and not _is_ordered(self._last, first)):
            self._begin()
        self._last = last
        self._connection.executemany(self._insert, batch)

    def _begin(self) -> None:
        name = run_name(self._runs)
        self._runs += 1
        self._connection.execute(create_table(self._table, name))
        self._insert = insert_statement(self._table, name, self._version)


def _sort(batch: list[Parameters], key: Callable[[Parameters], object]) -> tuple[object, object]:
    """Sort by key and return the first and the last key. A batch in order already costs one comparison per row."""
    try:
        batch.sort(key=key)  # type: ignore[arg-type]
    except TypeError:
        batch.sort(key=lambda row: comparable(key(row)))  # type: ignore[arg-type, return-value]
    return key(batch[0]), key(batch[-1])


def _is_ordered(before: object, after: object) -> bool:
    return comparable(before) <= comparable(after)  # type: ignore[no-any-return, operator]


def run_name(number: int) -> str:
    """Return the name of a run's table."""
    return f"run_{number}"


def insert_statement(table: Table, name: str, version: str) -> str:
    """Return the statement that appends a row with this version."""
    return f"INSERT INTO {quoted(name)} VALUES ({'?, ' * len(table.columns)}'{version}')"


def scratch_database(file: Path) -> sqlite3.Connection:
    """Open a new file for one writer, in a transaction, without durability: after a crash it is written again."""
    private_database(file)
    connection = connect(file)
    for pragma in (
        f"page_size = {PAGE_SIZE}",
        "journal_mode = OFF",
        "synchronous = OFF",
        "locking_mode = EXCLUSIVE",
        "secure_delete = OFF",
        "cache_size = -32768",
    ):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("BEGIN")
    return connection


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise `StateError` for a failure of SQLite inside the block."""
    try:
        yield
    except sqlite3.Error as error:
        raise StateError(
            "seed-file-failed",
            f"the file cannot be written or read: {error}",
            str(path),
            "make room on that disk, or check it; then run the command again",
        ) from error


def plan_pieces(tables: Iterable[Table], parts: Sequence[SpoolPart], version: str, piece_bytes: int) -> list[PieceTask]:
    """Group the parts of each table into tasks of about `piece_bytes` of frames."""
    tasks: list[PieceTask] = []
    for table in tables:
        waiting: list[SpoolPart] = []
        own = [each for each in parts if each.part.table == table.full_name]
        for each in own:
            waiting.append(each)
            if sum(one.part.bytes for one in waiting) >= piece_bytes or each is own[-1]:
                tasks.append(PieceTask(len(tasks), table, tuple(waiting), version))
                waiting = []
    return tasks
