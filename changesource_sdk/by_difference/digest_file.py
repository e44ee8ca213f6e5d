"""The digests of all rows in one SQLite file, in versions that are connected like commits.

Two memories must agree: this file, and the log, whose position names a version of the file. They cannot commit
together, so the file can be in any version that the log may name. Each version keeps its `delta` to its parent, with
the digests before and after, and `move_to` applies deltas backwards and forwards. A version is committed here before
its transaction is yielded; if the transaction never becomes durable, the next reader moves back and makes another. When
the log has acknowledged a version, everything but it and what follows it is deleted.

A version that is not in the file (the file was lost, or restored from an older copy) is `None` for the caller, who
reads everything again. No version is ever taken for another: see `versions`.

The file has a rollback journal, not a WAL: a copy of the file alone is then a consistent state, and an old copy next
to a newer WAL would not be. Statements outside of `commit` and `acknowledge` are short reads, so that the two threads
of a pipeline, one that lists and one that acknowledges, do not wait for each other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import orjson

from changesource_sdk.by_difference.versions import RememberedTable, Version, from_json, new_token, to_json
from changesource_sdk.errors import AdapterError, position_lost
from service_kit.sqlite import connect

FORMAT = 1
BUSY_SECONDS = 30.0
CACHE_KIB = 16 << 10
SCAN_KEYS = 5_000

_TABLES = (
    "CREATE TABLE version "
    "(number INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, parent INTEGER, tables TEXT NOT NULL)",
    "CREATE TABLE head (number INTEGER NOT NULL)",
    "CREATE TABLE digest (tbl INTEGER, key TEXT, digest BLOB NOT NULL, PRIMARY KEY (tbl, key)) WITHOUT ROWID",
    "CREATE TABLE delta (version INTEGER, tbl INTEGER, key TEXT, before BLOB, after BLOB, "
    "PRIMARY KEY (version, tbl, key)) WITHOUT ROWID",
)

Delta = tuple[int, str, bytes | None, bytes | None]
"""Table id, key, digest before and after; None where there is no row."""


class DigestFile:
    """One connection, for one thread. A context manager that closes it.

    Invariant: `digest` is the state of the version that `head` names.
    """

    def __init__(self, path: Path) -> None:
        """Open a file that exists. Raises `ResyncRequired` if it does not, or is damaged."""
        self._path = path
        if not path.is_file():
            raise position_lost("the digests of the rows are gone", str(path))
        with self.translated_errors():
            self._db = connect(path, mode="rw", busy_seconds=BUSY_SECONDS)
            self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._db.execute("PRAGMA synchronous = FULL")
            if self._db.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
                raise position_lost("the digests were written by another version of this software", str(path))

    @classmethod
    def create(cls, path: Path, tables: Sequence[RememberedTable]) -> Self:
        """A new, durable file with one version and no rows. Raises `AdapterError`."""
        with translated_errors(path):
            db = connect(path)
            for statement in _TABLES:
                db.execute(statement)
            db.execute("INSERT INTO version VALUES (0, ?, NULL, ?)", (new_token(0), to_json(tables)))
            db.execute("INSERT INTO head VALUES (0)")
            db.execute(f"PRAGMA user_version = {FORMAT}")
            db.close()
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def translated_errors(self) -> _Translated:
        """Errors of SQLite as errors of the adapter, inside a `with`."""
        return translated_errors(self._path)

    def check(self) -> None:
        """Read the whole file. Raises `ResyncRequired` if it is damaged."""
        with self.translated_errors():
            if self._db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise position_lost("the file with the digests of the rows is damaged", str(self._path))

    def head(self) -> Version:
        """The version that the digests are in."""
        with self.translated_errors():
            query = "SELECT number, token, tables FROM version WHERE number = (SELECT number FROM head)"
            number, token, tables = self._db.execute(query).fetchone()
            return Version(number, token, from_json(tables))

    def digests(self, table: int, keys: Iterable[str]) -> dict[str, bytes]:
        """The digests of those keys that are remembered."""
        query = "SELECT key, digest FROM digest WHERE tbl = ? AND key IN (SELECT value FROM json_each(?))"
        with self.translated_errors():
            return dict(self._db.execute(query, (table, orjson.dumps(list(keys)).decode())).fetchall())

    def count(self, table: int) -> int:
        """How many rows of a table are remembered."""
        with self.translated_errors():
            return int(self._db.execute("SELECT count(*) FROM digest WHERE tbl = ?", (table,)).fetchone()[0])

    def scan(self, table: int) -> Iterator[list[tuple[str, bytes]]]:
        """Keys and digests of all rows of a table, some at a time."""
        query = "SELECT key, digest FROM digest WHERE tbl = ? AND key > ? ORDER BY key LIMIT ?"
        last = ""
        while True:
            with self.translated_errors():
                rows = self._db.execute(query, (table, last, SCAN_KEYS)).fetchall()
            if not rows:
                return
            yield rows
            last = rows[-1][0]

    def fill(self, batches: Iterable[list[tuple[int, str, bytes]]]) -> None:
        """Add the rows of the first version: batches of table id, key and digest. One durable transaction."""
        with self.translated_errors(), self._transaction():
            for batch in batches:
                self._db.executemany("INSERT INTO digest VALUES (?, ?, ?)", batch)

    def commit(
        self, base: Version, tables: Sequence[RememberedTable], deltas: Iterable[Delta], dropped: Sequence[int] = ()
    ) -> Version:
        """A new version after `base`, durable. `deltas` are its changed rows; all rows of `dropped` table ids go.

        Raises `AdapterError` if the head is not `base`: another process has used the file.
        """
        with self.translated_errors(), self._transaction():
            self._expect_head(base)
            number = int(self._db.execute("SELECT max(number) + 1 FROM version").fetchone()[0])
            version = Version(number, new_token(number), tuple(tables))
            for table in dropped:
                self._db.execute(
                    "INSERT INTO delta SELECT ?, tbl, key, digest, NULL FROM digest WHERE tbl = ?", (number, table)
                )
            self._db.executemany("INSERT INTO delta VALUES (?, ?, ?, ?, ?)", ((number, *delta) for delta in deltas))
            self._db.execute(
                "INSERT INTO version VALUES (?, ?, ?, ?)", (number, version.token, base.number, to_json(tables))
            )
            self._apply(number, "after")
            self._db.execute("UPDATE head SET number = ?", (number,))
        return version

    def update_head(self, base: Version, tables: Sequence[RememberedTable]) -> None:
        """Replace what is remembered of the tables in the present version: no row has changed."""
        with self.translated_errors(), self._transaction():
            self._expect_head(base)
            self._db.execute("UPDATE version SET tables = ? WHERE number = ?", (to_json(tables), base.number))

    def move_to(self, token: str) -> Version | None:
        """Bring the digests to the version with this token; None if the file does not have it."""
        head = self.head()
        if head.token == token:
            return head
        with self.translated_errors(), self._transaction():
            row = self._db.execute("SELECT number FROM version WHERE token = ?", (token,)).fetchone()
            if row is None:
                return None
            self._move(row[0])
        return self.head()

    def acknowledge(self, token: str) -> None:
        """Delete what no position at or after this version needs. Does nothing for an unknown token."""
        with self.translated_errors(), self._transaction():
            row = self._db.execute("SELECT number FROM version WHERE token = ?", (token,)).fetchone()
            if row is None:
                return
            parents = self._parents()
            kept = {number for number in parents if row[0] in _lineage(parents, number)}
            if self._head_number() not in kept:
                self._move(row[0])
            gone = orjson.dumps([number for number in parents if number not in kept]).decode()
            self._db.execute("DELETE FROM version WHERE number IN (SELECT value FROM json_each(?))", (gone,))
            self._db.execute("DELETE FROM delta WHERE version IN (SELECT value FROM json_each(?))", (gone,))
            self._db.execute("DELETE FROM delta WHERE version = ?", row)
            self._db.execute("UPDATE version SET parent = NULL WHERE number = ?", row)

    def retained(self) -> int:
        """How many changed rows are kept for versions that are not acknowledged."""
        with self.translated_errors():
            return int(self._db.execute("SELECT count(*) FROM delta").fetchone()[0])

    def _move(self, target: int) -> None:
        """Undo the versions from the head to the common ancestor, then redo those down to `target`."""
        parents = self._parents()
        up, down = _lineage(parents, self._head_number()), _lineage(parents, target)
        for number in (each for each in up if each not in down):
            self._apply(number, "before")
        for number in reversed([each for each in down if each not in up]):
            self._apply(number, "after")
        self._db.execute("UPDATE head SET number = ?", (target,))

    def _apply(self, version: int, side: str) -> None:
        """Set the rows that a version changed to their digests before or after it."""
        rows = f"FROM delta WHERE version = ? AND {side}"
        self._db.execute(f"DELETE FROM digest WHERE (tbl, key) IN (SELECT tbl, key {rows} IS NULL)", (version,))
        self._db.execute(f"INSERT OR REPLACE INTO digest SELECT tbl, key, {side} {rows} IS NOT NULL", (version,))

    def _parents(self) -> dict[int, int | None]:
        return dict(self._db.execute("SELECT number, parent FROM version").fetchall())

    def _head_number(self) -> int:
        return int(self._db.execute("SELECT number FROM head").fetchone()[0])

    def _expect_head(self, base: Version) -> None:
        if self.head().token != base.token:
            raise AdapterError(
                "state-in-use",
                "another process has changed the digests while rows were listed",
                str(self._path),
                "run one pipeline per state folder; the listing is tried again",
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def _lineage(parents: dict[int, int | None], number: int) -> list[int]:
    """A version and its ancestors, nearest first."""
    line: list[int] = []
    current: int | None = number
    while current is not None and current in parents:
        line.append(current)
        current = parents[current]
    return line


class _Translated:
    """Turns SQLite's errors into those of the adapter: a damaged file is a lost position, others may pass."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        # Exactly this class: "malformed" and "not a database". A full disk or a lock is an OperationalError.
        if kind is sqlite3.DatabaseError:
            reason = f"the file with the digests of the rows is damaged ({error})"
            raise position_lost(reason, str(self._path)) from error
        if isinstance(error, sqlite3.Error):
            fix = "check the free space and the permissions of the folder; the listing is tried again"
            raise AdapterError(
                "state-unusable", f"the digests cannot be used: {error}", str(self._path), fix
            ) from error


translated_errors = _Translated
