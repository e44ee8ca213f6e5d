"""The log in SQLite.

Readers may start before the writer: a log that does not exist yet is read as an empty one. When the pipeline sets a
damaged log aside and starts a new file, readers notice the other inode and open that. The data of large transactions
are block files in the folder `segments` of the state directory, and the transaction's row has the file's name.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from changesource_sdk import positions as positions_as_text
from changesource_sdk.changelog.dead_letters import MOST_SKIPS, KeptAside, LetterEdit, kept_aside
from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.files.layout import StateDirectory, sync_directory
from changesource_sdk.changelog.files.lock import WriteTurn
from changesource_sdk.changelog.log import (
    LogState,
    LogUpdate,
    SnapshotRecord,
    SourceRow,
    StoredTransaction,
    segment_prefix,
)
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.sqlite.connection import (
    SHARED_FORMAT,
    connect_reader,
    connect_writer,
    corrupt,
    set_aside,
    translated,
)
from changesource_sdk.changelog.sqlite.wakeup import WakeupSender
from changesource_sdk.changelog.writer import fenced

_READ = """SELECT watermark, commit_time_ms, changes, size, frames, segment, segment_crc32
FROM transactions WHERE watermark > ? ORDER BY watermark"""
_STATE = """SELECT format, generation, epoch, head, oldest, position, schema,
  coalesce((SELECT max(id) FROM transactions) - (SELECT min(id) FROM transactions) + 1, 0), highest
FROM state, consumer_schema"""
# Ids have no gaps within a generation, so two look-ups count them.
_COUNT_AFTER = """SELECT coalesce((SELECT max(id) FROM transactions) + 1 -
  (SELECT id FROM transactions WHERE watermark > ? ORDER BY watermark LIMIT 1), 0)"""
_SIZES = """SELECT watermark, size FROM transactions WHERE watermark >= ? AND watermark <= ?
ORDER BY watermark LIMIT ?"""
_SNAPSHOTS = "SELECT watermark, generation, position, schema, directory, created_ms FROM snapshots ORDER BY watermark"
_INSERT = """INSERT INTO transactions
(watermark, position, commit_time_ms, changes, size, frames, segment, segment_crc32) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_TAKE_OVER = "UPDATE state SET epoch = epoch + 1, highest = max(highest, ?) RETURNING epoch"
_LETTERS = "SELECT source, table_name, letter FROM dead_letters ORDER BY id DESC LIMIT ?"
_COUNT_LETTERS = "SELECT table_name, outcome, count(*) FROM dead_letters GROUP BY 1, 2"
_SKIPS = "SELECT skip FROM skips ORDER BY id DESC LIMIT ?"
_PUT_LETTER = """INSERT OR REPLACE INTO dead_letters (source, table_name, row_key, outcome, letter)
VALUES (?, ?, ?, ?, ?)"""
_CURRENT = """SELECT epoch, generation, head, oldest, position, highest,
  coalesce((SELECT max(id) FROM transactions) - (SELECT min(id) FROM transactions) + 1, 0) FROM state"""
_SOURCES = "SELECT name, epoch, position, schema, fingerprint, reads FROM sources ORDER BY name"
_TAKE_OVER_SOURCE = """INSERT INTO sources VALUES (?, 1, NULL, '', '', 0)
ON CONFLICT (name) DO UPDATE SET epoch = epoch + 1 RETURNING epoch"""
_SAVE_SOURCE = "UPDATE sources SET position = ?, schema = ?, fingerprint = ?, reads = ? WHERE name = ?"
_SAVE = "UPDATE state SET generation = ?, head = ?, oldest = ?, highest = ?, position = ?"


class SqliteLog:
    """A `Log` in one state directory. Reading is one short query under a lock, so threads may share it."""

    def __init__(self, layout: StateDirectory) -> None:
        self._layout = layout
        self._lock = threading.Lock()  # around every query of a reader
        # Opened by the first query of a reader, or by `take_over` for writing; again when the file was replaced.
        self._connection: sqlite3.Connection | None = None
        # Inode of the file that `_connection` has open, -1 before; written together with it, under `_lock`.
        self._inode = -1
        # Set by `take_over` and `take_over_source`, and then this object is a writer.
        self._wakeups: WakeupSender | None = None
        # Where the writers of several sources wait for each other; set together with `_wakeups`.
        self._turn: WriteTurn | None = None

    def state(self) -> LogState:
        """Read the state in one statement, so that all of it is of one moment; the sources are read after it."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            row = connection.execute(_STATE).fetchone() if connection else None
            if connection is None or row is None:
                return LogState()
            log_format, generation, epoch, head, oldest, position, schema, count, highest = row
            # Logs of other formats may lack the table.
            rows = connection.execute(_SOURCES).fetchall() if log_format == SHARED_FORMAT else []
        sources = {each[0]: SourceRow(*each) for each in rows}
        known = positions_as_text.from_text(position)
        return LogState(generation, epoch, head, oldest, known, schema, count, highest, sources)

    def snapshots(self) -> list[SnapshotRecord]:
        """Read the table `snapshots`."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            rows = connection.execute(_SNAPSHOTS).fetchall() if connection else []
        spool, parse = self._layout.spool, positions_as_text.from_text
        return [
            SnapshotRecord(watermark, generation, parse(position), schema, spool / folder, created)
            for watermark, generation, position, schema, folder, created in rows
        ]

    def read_after(self, watermark: str, max_bytes: int) -> list[StoredTransaction]:
        """Read rows until their sizes exceed `max_bytes`."""
        stored: list[StoredTransaction] = []
        with self._lock, translated(self._layout.log):
            connection = self._current()
            if connection is None:
                return stored
            cursor = connection.execute(_READ, (watermark,))
            for row in cursor:
                if stored and max_bytes < row[3]:
                    break
                max_bytes -= row[3]
                stored.append(self._stored(row))
            cursor.close()
        return stored

    def _stored(
        self, row: tuple[str, float | None, int, int, bytes | None, str | None, int | None]
    ) -> StoredTransaction:
        watermark, time, changes, size, frames, segment, crc32 = row
        if segment is None:
            return StoredTransaction(watermark, time, changes, size, frames)
        around = len(begin_frame(watermark)) + len(commit_frame(watermark, time))
        file = BlockFile(self._layout.segments / segment, size - around, crc32 or 0)
        return StoredTransaction.of_segment(watermark, time, changes, size, file)

    def sizes(self, first: str, through: str, at_most: int) -> list[tuple[str, int]]:
        """Read the sizes without the frames."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            return connection.execute(_SIZES, (first, through, at_most)).fetchall() if connection else []

    def count_after(self, watermark: str) -> int:
        """Subtract two ids: they have no gaps."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            return int(connection.execute(_COUNT_AFTER, (watermark,)).fetchone()[0]) if connection else 0

    def known(self, positions: Sequence[str]) -> dict[str, str]:
        """Look each position up, first among the transactions, then among the snapshots."""
        known: dict[str, str] = {}
        with self._lock, translated(self._layout.log):
            connection = self._current()
            for table in ("transactions", "snapshots") if connection else ():
                query = f"SELECT watermark FROM {table} WHERE position = ?"
                for text in positions:
                    if connection and text not in known and (row := connection.execute(query, (text,)).fetchone()):
                        known[text] = str(row[0])
        return known

    def kept_aside(self, at_most: int | None = None) -> KeptAside:
        """Rows of `dead_letters` and `skips`, the last first; the tables are bounded."""
        with self._lock, translated(self._layout.log):
            connection = self._current()
            # A log of an earlier release gets the tables from its next writer.
            is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'skips'"
            if connection is None or not connection.execute(is_there).fetchone():
                return KeptAside([], {}, [])
            limit = (-1 if at_most is None else at_most,)
            letters = connection.execute(_LETTERS, limit).fetchall()
            counts = connection.execute(_COUNT_LETTERS).fetchall()
            skips = connection.execute(_SKIPS, limit).fetchall()
        return kept_aside(letters, counts, skips)

    def _current(self) -> sqlite3.Connection | None:
        """Return a connection to the present file, under `_lock`; None while there is none, or none with tables."""
        if self._wakeups is not None:
            return self._connection
        inode = _inode(self._layout.log)
        if self._connection is not None and inode != self._inode:
            self._connection.close()
            self._connection = None
        if self._connection is None and inode is not None:
            connection = connect_reader(self._layout.log)
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'state'").fetchone():
                connection.close()
                return None
            self._connection, self._inode = connection, inode
        return self._connection

    def take_over(self, highest: str, source: str = "", epoch: int = 0) -> LogState:
        """Open the file for writing. For the whole log its pages are checked, and a missing segment is `CorruptLog`."""
        self._connection = connect_writer(self._layout.log, check_pages=not source)
        self._wakeups = WakeupSender(self._layout.pokes)
        self._turn = WriteTurn(self._layout.root)
        if source:
            return self._take_over_source(self._connection, source, epoch)
        with translated(self._layout.log):
            (epoch,) = self._connection.execute(_TAKE_OVER, (highest,)).fetchone()
        self._sweep_segments(self._connection)
        # The state may already be that of a newer writer, with its epoch. This writer's epoch must be the one it took,
        # so that its first write fails.
        return replace(self.state(), epoch=epoch)

    def _take_over_source(self, connection: sqlite3.Connection, source: str, epoch: int) -> LogState:
        with self._transaction(connection, epoch) as (_, state):
            (source_epoch,) = connection.execute(_TAKE_OVER_SOURCE, (source,)).fetchone()
            connection.execute("UPDATE state SET format = ?", (SHARED_FORMAT,))
        self._sweep_segments(connection, segment_prefix(source))
        return replace(state, epoch=source_epoch)

    def _sweep_segments(self, connection: sqlite3.Connection, prefix: str = "") -> None:
        """Remove the segments that no row names: of a former generation, or left by a kill."""
        # Listed first: the log's owner may prune meanwhile, and removes a file after its row.
        present = {file.name for file in self._layout.segments.iterdir() if file.name.startswith(prefix)}
        with translated(self._layout.log):
            rows = connection.execute("SELECT segment FROM transactions WHERE segment IS NOT NULL").fetchall()
        named = {name for (name,) in rows if name.startswith(prefix)}
        if missing := named - present:
            raise corrupt(self._layout.log, f"{len(missing)} of its segment files are missing")
        self._remove_segments(present - named)

    def _remove_segments(self, names: set[str]) -> None:
        for name in names:
            (self._layout.segments / name).unlink(missing_ok=True)

    def write(self, make: Callable[[LogState], LogUpdate], epoch: int, source: SourceRow | None = None) -> LogUpdate:
        """One SQLite transaction, then a wake-up to every reader."""
        assert self._connection is not None
        assert self._wakeups is not None
        with self._transaction(self._connection, epoch) as (connection, current):
            if source is not None:
                self._require_newest(connection, source)
            update = make(current)
            if update.segments:
                sync_directory(self._layout.segments)
            if update.before_commit is not None:
                update.before_commit()
            forgotten = _apply(connection, update)
        self._remove_segments(forgotten)
        if update.starts_generation:
            self._sweep_segments(self._connection)
        if update.wakes_readers:
            self._wakeups.send()
        return update

    def _require_newest(self, connection: sqlite3.Connection, source: SourceRow) -> None:
        (newest,) = connection.execute("SELECT epoch FROM sources WHERE name = ?", (source.name,)).fetchone()
        if newest != source.epoch:
            raise fenced(source.epoch, newest, f"{self._layout.log}, source {source.name}")

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection, epoch: int) -> Iterator[tuple[sqlite3.Connection, LogState]]:
        """All or nothing, and only while the epoch is the newest; with the state, but for its schema."""
        with self._turn or nullcontext(), translated(self._layout.log):
            connection.execute("BEGIN IMMEDIATE")
            try:
                newest, generation, head, oldest, position, highest, count = connection.execute(_CURRENT).fetchone()
                if newest != epoch:
                    raise fenced(epoch, newest, str(self._layout.log))
                known = positions_as_text.from_text(position)
                yield connection, LogState(generation, epoch, head, oldest, known, "", count, highest)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def set_aside(self) -> str | None:
        """Rename the file and its WAL."""
        self.close()
        return set_aside(self._layout.log).name if self._layout.log.exists() else None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._wakeups is not None:
                self._wakeups.close()
                self._wakeups = None
            if self._turn is not None:
                self._turn.close()
                self._turn = None
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _apply(connection: sqlite3.Connection, update: LogUpdate) -> set[str]:
    """Run the statements of an update; returns the segment files of the transactions that it deletes."""
    forgotten: set[str] = set()
    if update.is_empty:
        return forgotten
    if update.starts_generation:
        connection.execute("DELETE FROM transactions")
        connection.execute("DELETE FROM snapshots")
        connection.execute("DELETE FROM dead_letters")
        connection.execute("UPDATE sources SET position = NULL, schema = '', fingerprint = ''")
    elif update.forget_through is not None:
        query = "DELETE FROM transactions WHERE watermark <= ? RETURNING segment"
        forgotten = {name for (name,) in connection.execute(query, (update.forget_through,)) if name is not None}
    if update.rows:
        connection.executemany(_INSERT, update.rows)
    if (record := update.snapshot) is not None:
        position = positions_as_text.to_text(record.position)
        row = (
            record.watermark,
            record.generation,
            position,
            record.schema,
            record.directory.name,
            record.created_ms,
        )
        connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
    for edit in update.letters:
        _edit_letters(connection, edit)
    for skip in update.skips:
        connection.execute("INSERT INTO skips (source, skip) VALUES (?, ?)", (skip.source, skip.to_text()))
        connection.execute("DELETE FROM skips WHERE id <= (SELECT max(id) FROM skips) - ?", (MOST_SKIPS,))
    for source in update.sources:
        connection.execute(_SAVE_SOURCE, (*source[2:], source.name))
    state = update.state
    position = positions_as_text.to_text(state.position)
    connection.execute(_SAVE, (state.generation, state.head, state.oldest, state.highest, position))
    if update.schema is not None:
        connection.execute("UPDATE consumer_schema SET schema = ?", (update.schema,))
    return forgotten


def _edit_letters(connection: sqlite3.Connection, edit: LetterEdit) -> None:
    if (letter := edit.letter) is not None:
        row = (letter.source, letter.table, letter.key, letter.outcome, letter.to_text())
        connection.execute(_PUT_LETTER, row)
    elif edit.key:
        connection.execute("DELETE FROM dead_letters WHERE table_name = ? AND row_key = ?", (edit.table, edit.key))
    elif edit.renamed:
        query = "UPDATE OR REPLACE dead_letters SET table_name = ? WHERE table_name = ?"
        connection.execute(query, (edit.renamed, edit.table))
    else:
        connection.execute("DELETE FROM dead_letters WHERE table_name = ?", (edit.table,))


def _inode(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None
