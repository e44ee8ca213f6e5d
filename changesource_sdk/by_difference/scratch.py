"""What one poll has listed, in a temporary SQLite file in the state folder: keys that were seen, and changed rows.

The file has no name once it is open, so nothing is left of it when the process dies. It is private to one poll, so
nothing about it is durable.
"""

from __future__ import annotations

import pickle
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import orjson

from changesource_sdk.adapter import Row
from changesource_sdk.by_difference.digest_file import CACHE_KIB, Delta, translated_errors
from changesource_sdk.by_difference.listing import DigestedRow
from changesource_sdk.errors import AdapterError
from service_kit.sqlite import connect


class ChangedRow(NamedTuple):
    """One changed row: `row` is None if it was deleted, `is_new` says that it was not remembered."""

    table: int
    key: str
    is_new: bool
    row: Row | None


class Scratch:
    """A context manager; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Raises `AdapterError` if the folder cannot be written."""
        self._folder = folder
        with translated_errors(folder):
            try:
                with tempfile.NamedTemporaryFile(dir=folder, prefix="scratch-", delete=True) as file:
                    self._db = connect(file.name)
                    # Opens the file, before its name goes.
                    self._db.execute("PRAGMA journal_mode = OFF")
                    self._db.execute("PRAGMA synchronous = OFF")
                    self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                    self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
                    self._db.execute("BEGIN")
                    self._db.execute("CREATE TABLE seen (key TEXT PRIMARY KEY, digest BLOB) WITHOUT ROWID")
                    self._db.execute(
                        "CREATE TABLE changed (tbl INTEGER, key TEXT, before BLOB, after BLOB, row BLOB, "
                        "PRIMARY KEY (tbl, key))"
                    )
            except OSError as error:
                raise sqlite3.OperationalError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def forget_seen(self) -> None:
        """Begin the next table."""
        with translated_errors(self._folder):
            self._db.execute("DELETE FROM seen")

    def see(self, table: str, batch: Sequence[DigestedRow]) -> list[DigestedRow]:
        """The rows of a batch whose keys come for the first time in this listing.

        A row that comes again unchanged is left out. Raises `AdapterError` if it comes again with other values: either
        the key is not unique, or rows moved while they were listed.
        """
        with translated_errors(self._folder):
            before = self._db.total_changes
            self._db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", ((row.key, row.digest) for row in batch))
            if self._db.total_changes - before == len(batch):
                return list(batch)
        return self._first_of_each(table, batch)

    def _first_of_each(self, table: str, batch: Sequence[DigestedRow]) -> list[DigestedRow]:
        """The batch without rows that were in it, or in an earlier one."""
        keys = orjson.dumps([row.key for row in batch]).decode()
        with translated_errors(self._folder):
            seen = dict(
                self._db.execute(
                    "SELECT key, digest FROM seen WHERE key IN (SELECT value FROM json_each(?))", (keys,)
                ).fetchall()
            )
        first: dict[str, DigestedRow] = {}
        for row in batch:
            if seen[row.key] != row.digest:
                raise AdapterError(
                    "repeated-key",
                    "two rows of one listing have the same key and other values",
                    f"table {table}, key {row.key:.80}",
                    "declare a key that is unique; page by a column that does not change while rows are listed",
                )
            first.setdefault(row.key, row)
        return list(first.values())

    def unseen(self, keys: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Those of these keys and digests that were not seen."""
        text = orjson.dumps([key for key, _ in keys]).decode()
        query = "SELECT key FROM seen WHERE key IN (SELECT value FROM json_each(?))"
        with translated_errors(self._folder):
            seen = {key for (key,) in self._db.execute(query, (text,))}
        return [(key, digest) for key, digest in keys if key not in seen]

    def add(self, table: int, key: str, before: bytes | None, after: bytes | None, row: Row | None) -> None:
        """A row whose digest is not the one that is remembered; it replaces an earlier one with the same key."""
        with translated_errors(self._folder):
            if before == after:
                self._db.execute("DELETE FROM changed WHERE tbl = ? AND key = ?", (table, key))
                return
            packed = None if row is None else pickle.dumps(dict(row), pickle.HIGHEST_PROTOCOL)
            self._db.execute(
                "INSERT OR REPLACE INTO changed VALUES (?, ?, ?, ?, ?)", (table, key, before, after, packed)
            )

    def is_empty(self) -> bool:
        """Whether no row has changed."""
        with translated_errors(self._folder):
            return self._db.execute("SELECT 1 FROM changed LIMIT 1").fetchone() is None

    def deltas(self) -> Iterator[Delta]:
        """The changed rows for `DigestFile.commit`."""
        with translated_errors(self._folder):
            yield from self._db.execute("SELECT tbl, key, before, after FROM changed")

    def deleted(self) -> Iterator[ChangedRow]:
        """Rows that are no longer there."""
        return self._rows("after IS NULL")

    def written(self) -> Iterator[ChangedRow]:
        """Rows that are new or have other values."""
        return self._rows("after IS NOT NULL")

    def replaced(self, table: int) -> Iterator[ChangedRow]:
        """Rows of one table that have other values."""
        return self._rows("before IS NOT NULL AND after IS NOT NULL AND tbl = ?", table)

    def _rows(self, condition: str, *values: object) -> Iterator[ChangedRow]:
        with translated_errors(self._folder):
            rows = self._db.execute(f"SELECT tbl, key, before IS NULL, row FROM changed WHERE {condition}", values)
            for table, key, is_new, row in rows:
                yield ChangedRow(table, key, bool(is_new), None if row is None else pickle.loads(row))
