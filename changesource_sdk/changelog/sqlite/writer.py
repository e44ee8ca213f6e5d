"""The writing side of the SQLite log: idempotent, fenced, durable when it returns.

One call of `append` is one SQLite transaction, however many source transactions it holds; the caller groups. Opening a
writer takes a new epoch, and every write checks inside its own transaction that the epoch is still this writer's: a
writer that was replaced while it slept cannot write. Files (segments, spool folders) are made durable before the row
that names them is committed, and removed after the row is gone; leftovers of a kill are swept when a writer opens.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from changesource_sdk import positions
from changesource_sdk.changelog.batch import Batch
from changesource_sdk.changelog.files.layout import StateDirectory, sync_directory
from changesource_sdk.changelog.log import EncodedTransaction, LogState, SnapshotRecord
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.sqlite.connection import connect_writer, corrupt, set_aside, translated
from changesource_sdk.changelog.sqlite.log import read_snapshots, read_state
from changesource_sdk.changelog.wakeup import PokeSender
from changesource_sdk.changelog.writer_rules import (
    fenced,
    follows,
    highest_spooled,
    next_generation,
    replayed,
    require_ahead,
    sweep_spool,
)
from changesource_sdk.errors import CorruptLog
from changesource_sdk.positions import Position
from protocol import watermark as watermarks
from protocol.watermark import EMPTY

_log = logging.getLogger("changesource.log")

_INSERT = """INSERT INTO transactions
(watermark, position, commit_time_ms, changes, size, frames, segment, segment_crc32) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""

_NTH = "SELECT watermark FROM transactions WHERE watermark <= ? ORDER BY watermark LIMIT 1 OFFSET ?"


def open_writer(state_directory: Path, now_us: Callable[[], int], spool: Path | None = None) -> SqliteLogWriter:
    """Take over the log: a damaged one is set aside, older writers are fenced off, leftovers are swept."""
    layout = StateDirectory(state_directory, spool).create()
    try:
        return SqliteLogWriter(layout, now_us)
    except CorruptLog as error:
        kept = set_aside(layout.log)
        _log.error("%s; set aside as %s, a new snapshot is taken", error, kept.name)
        return SqliteLogWriter(layout, now_us)


class SqliteLogWriter:
    """A `LogWriter`. Invariant: the state row always describes the last row of `transactions`."""

    def __init__(self, layout: StateDirectory, now_us: Callable[[], int]) -> None:
        self._layout = layout
        self._now_us = now_us
        self._connection = connect_writer(layout.log)
        self._poker = PokeSender(layout.pokes)
        try:
            self.epoch = self._take_epoch()
            self._state = replace(read_state(self._connection), epoch=self.epoch)
            self._head_major = watermarks.to_int(self._state.head)[0]
            # A log restored from an older copy must not use its numbers again for other transactions: what is appended
            # from here on is numbered from the clock, which is above all that was ever numbered before.
            self._floor = now_us()
            self._sweep()
        except BaseException:
            self.close()
            raise

    def _take_epoch(self) -> int:
        take = "UPDATE state SET epoch = epoch + 1, highest = max(highest, ?) RETURNING epoch"
        with translated(self._layout.log):
            return int(self._connection.execute(take, (highest_spooled(self._layout.spool),)).fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, and only while this writer is the newest."""
        connection = self._connection
        with translated(self._layout.log):
            connection.execute("BEGIN IMMEDIATE")
            try:
                epoch = connection.execute("SELECT epoch FROM state").fetchone()[0]
                if epoch != self.epoch:
                    raise fenced(self.epoch, epoch, str(self._layout.log))
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def state(self) -> LogState:
        """Where the log stands, as this writer left it."""
        return self._state

    def snapshots(self) -> list[SnapshotRecord]:
        """The snapshots of the current generation."""
        with translated(self._layout.log):
            return read_snapshots(self._connection, self._layout)

    def knows(self, position: Position) -> bool:
        """Whether this position was already appended in this generation."""
        with translated(self._layout.log):
            return self._known_watermark(position, positions.to_text(position)) is not None

    def _known_watermark(self, position: Position, text: str) -> str | None:
        if positions.is_ahead(position, self._state.position):
            return None
        find = self._connection.execute
        if row := find("SELECT watermark FROM transactions WHERE position = ?", (text,)).fetchone():
            return str(row[0])
        if row := find("SELECT watermark FROM snapshots WHERE position = ?", (text,)).fetchone():
            return str(row[0])
        return replayed(self._state, position)

    def append(self, transactions: Sequence[EncodedTransaction]) -> list[str]:
        """Make all durable, or none; poke the readers; the watermark of each."""
        segments = [t.data for t in transactions if isinstance(t.data, BlockFile)]
        if segments:
            sync_directory(self._layout.segments)
        with self._transaction() as connection:
            batch = Batch(self._state.head, self._head_major, self._floor)
            for transaction in transactions:
                text = positions.to_text(transaction.position)
                known = self._known_watermark(transaction.position, text)
                batch.add(transaction, text, known)
            connection.executemany(_INSERT, batch.rows)
            after = self._advance(connection, batch)
        self._state, self._head_major = after, batch.major
        for segment in batch.unneeded:
            segment.path.unlink(missing_ok=True)
        if batch.rows:
            self._poker.poke()
        return batch.watermarks

    def _advance(self, connection: sqlite3.Connection, batch: Batch) -> LogState:
        last = batch.last
        before = self._state
        if last is None:
            return before
        connection.execute(
            "UPDATE state SET head = ?, highest = ?, position = ?", (batch.head, batch.head, batch.rows[-1][1])
        )
        if batch.schema is not None:
            connection.execute("UPDATE consumer_schema SET schema = ?", (batch.schema,))
        schema = before.schema if batch.schema is None else batch.schema
        count = before.transactions + len(batch.rows)
        return LogState(before.generation, self.epoch, batch.head, before.oldest, last.position, schema, count)

    def next_generation(self, above: str = EMPTY, proposed: str | None = None) -> str:
        """A watermark above `above` and all that this log ever named; `proposed` if that is."""
        with translated(self._layout.log):
            highest = str(self._connection.execute("SELECT highest FROM state").fetchone()[0])
        return next_generation(highest, above, proposed, self._now_us())

    def start_generation(
        self, watermark: str, position: Position, schema: str, directory: Path, created_ms: float
    ) -> SnapshotRecord:
        """Register a complete snapshot and drop everything before it."""
        text, generation = positions.to_text(position), self._state.generation + 1
        require_ahead(watermark, self._state.head)
        sync_directory(self._layout.spool)
        with self._transaction() as connection:
            connection.execute("DELETE FROM transactions")
            connection.execute("DELETE FROM snapshots")
            row = (watermark, generation, text, schema, directory.name, created_ms)
            connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
            connection.execute(
                "UPDATE state SET generation = ?, head = ?, oldest = ?, highest = ?, position = ?",
                (generation, watermark, watermark, watermark, text),
            )
            connection.execute("UPDATE consumer_schema SET schema = ?", (schema,))
        self._state = LogState(generation, self.epoch, watermark, watermark, position, schema, 0)
        self._head_major = watermarks.to_int(watermark)[0]
        self._sweep()
        self._poker.poke()
        return SnapshotRecord(watermark, generation, position, schema, directory, created_ms)

    def add_snapshot(self, base: str, record: SnapshotRecord) -> bool:
        """Register a compacted snapshot, and let go of the files of those before it."""
        text, final = positions.to_text(record.position), self._layout.spool / record.watermark
        with self._transaction() as connection:
            known = [watermark for (watermark,) in connection.execute("SELECT watermark FROM snapshots")]
            if not follows(record.watermark, base, known, self._state.head):
                return False
            snapshots.adopt(record.directory, final)
            row = (record.watermark, self._state.generation, text, record.schema, final.name, record.created_ms)
            connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
        self._sweep_spool()
        self._poker.poke()
        return True

    def prune(self, below: str, at_most: int | None = None) -> int:
        """Forget transactions up to and including `below`, never beyond the head."""
        below = min(below, self._state.head)
        if below <= self._state.oldest:
            return 0
        with self._transaction() as connection:
            if at_most is not None:
                last = connection.execute(_NTH, (below, at_most - 1)).fetchone()
                below = last[0] if last else below
            query = "DELETE FROM transactions WHERE watermark <= ? RETURNING segment"
            gone = [segment for (segment,) in connection.execute(query, (below,))]
            connection.execute("UPDATE state SET oldest = ?", (below,))
        self._state = replace(self._state, oldest=below, transactions=self._state.transactions - len(gone))
        for segment in filter(None, gone):
            (self._layout.segments / segment).unlink(missing_ok=True)
        self._sweep_spool()
        return len(gone)

    def _sweep_spool(self) -> None:
        sweep_spool(self._layout.spool, [snapshot.directory.name for snapshot in self.snapshots()])

    def _sweep(self) -> None:
        """Remove spool folders and segments that no row names: of a former generation, or left by a kill."""
        self._sweep_spool()
        query = "SELECT segment FROM transactions WHERE segment IS NOT NULL"
        segments = {name for (name,) in self._connection.execute(query)}
        present = {file.name for file in self._layout.segments.iterdir()}
        if missing := segments - present:
            raise corrupt(self._layout.log, f"{len(missing)} of its segment files are missing")
        for name in present - segments:
            (self._layout.segments / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the file; another writer may follow."""
        self._poker.close()
        self._connection.close()
