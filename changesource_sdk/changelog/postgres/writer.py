"""The writing side of a log kept in Postgres: idempotent, fenced, durable when it returns.

One call of `append` is one transaction, however many source transactions it holds. It locks the state row and compares
the epoch first, so a writer that was replaced while it slept cannot write, and two writers never interleave. The
notification that wakes readers is part of the transaction. If the connection is lost, whatever was not committed never
was; the next writer finds out from the state row what is there, and what is sent again is known by its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from changesource_sdk import positions
from changesource_sdk.changelog.batch import Batch
from changesource_sdk.changelog.files.layout import StateDirectory, sync_directory
from changesource_sdk.changelog.log import EncodedTransaction, LogState, SnapshotRecord
from changesource_sdk.changelog.postgres.connection import Connection, LogAddress, connect, translated
from changesource_sdk.changelog.postgres.log import SNAPSHOTS, STATE_COLUMNS, snapshots_of, state_of
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.writer_rules import (
    fenced,
    follows,
    highest_spooled,
    next_generation,
    replayed,
    require_ahead,
    sweep_spool,
)
from changesource_sdk.positions import Position
from protocol import watermark as watermarks
from protocol.watermark import EMPTY

_TAKE_OVER = f"UPDATE state SET epoch = epoch + 1, highest = greatest(highest, %s) RETURNING {STATE_COLUMNS}"
_INSERT = """INSERT INTO transactions (watermark, position, commit_time_ms, changes, size, frames, blocks)
VALUES (%s, %s, %s, %s, %s, %b, %s)"""
_COPY_BLOCKS = "COPY segment_blocks (watermark, number, block) FROM STDIN (FORMAT BINARY)"
_BLOCK_TYPES = ("text", "int4", "bytea")
_KNOWN = """SELECT position, watermark FROM snapshots WHERE position = ANY(%s)
UNION ALL SELECT position, watermark FROM transactions
WHERE md5(position) IN (SELECT md5(asked) FROM unnest(%s::text[]) AS asked)"""
_ADVANCE = """UPDATE state SET head = %s, highest = %s, position = %s, schema = coalesce(%s, schema),
transactions = transactions + %s"""
_START = """UPDATE state SET generation = %s, head = %s, oldest = %s, highest = %s, position = %s, schema = %s,
transactions = 0"""

_NTH = "SELECT watermark FROM transactions WHERE watermark <= %s ORDER BY watermark LIMIT 1 OFFSET %s"


class PostgresLogWriter:
    """A `LogWriter`. Invariant: the state row always describes the last row of `transactions`."""

    def __init__(
        self,
        address: LogAddress,
        layout: StateDirectory,
        now_us: Callable[[], int],
        remote: RemoteSpool | None = None,
    ) -> None:
        self._address = address
        self._remote = remote
        self._layout = layout
        self._now_us = now_us
        self._connection = connect(address)
        try:
            self._state = self._take_over()
            self.epoch = self._state.epoch
            self._head_major = watermarks.to_int(self._state.head)[0]
            # A log restored from an older copy must not use its numbers again for other transactions: what is appended
            # from here on is numbered from the clock, which is above all that was ever numbered before.
            self._floor = now_us()
            self._sweep()
        except BaseException:
            self.close()
            raise

    def _take_over(self) -> LogState:
        """Become the newest writer; the state as of that moment."""
        spooled = [highest_spooled(self._layout.spool), *(self._remote.watermarks() if self._remote else ())]
        with translated(self._address.where):
            return state_of(self._connection.execute(_TAKE_OVER, (max(spooled),)).fetchall())

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """All or nothing, and only while this writer is the newest."""
        with translated(self._address.where), self._connection.transaction():
            row = self._connection.execute("SELECT epoch FROM state FOR UPDATE").fetchone()
            assert row is not None
            if row[0] != self.epoch:
                raise fenced(self.epoch, row[0], self._address.where)
            yield self._connection

    def state(self) -> LogState:
        """Where the log stands, as this writer left it."""
        return self._state

    def snapshots(self) -> list[SnapshotRecord]:
        """The snapshots of the current generation."""
        with translated(self._address.where):
            return snapshots_of(self._connection.execute(SNAPSHOTS).fetchall(), self._layout.spool)

    def knows(self, position: Position) -> bool:
        """Whether this position was already appended in this generation."""
        with translated(self._address.where):
            return bool(self._known([position]))

    def _known(self, asked: Sequence[Position]) -> dict[str, str]:
        """The watermarks of those positions that the log holds, or once held."""
        state = self._state
        candidates = {positions.to_text(p): p for p in asked if not positions.is_ahead(p, state.position)}
        if not candidates:
            return {}
        texts = list(candidates)
        stored: dict[str, str] = dict(self._connection.execute(_KNOWN, (texts, texts)).fetchall())
        forgotten = {text: replayed(state, p) for text, p in candidates.items() if text not in stored}
        return stored | {text: mark for text, mark in forgotten.items() if mark is not None}

    def append(self, transactions: Sequence[EncodedTransaction]) -> list[str]:
        """Make all durable, or none; wake the readers; the watermark of each."""
        with self._transaction() as connection:
            known = self._known([transaction.position for transaction in transactions])
            batch = Batch(self._state.head, self._head_major, self._floor)
            for transaction in transactions:
                text = positions.to_text(transaction.position)
                batch.add(transaction, text, known.get(text))
            after = self._store(connection, batch)
        self._state, self._head_major = after, batch.major
        for transaction in transactions:
            if isinstance(transaction.data, BlockFile):
                transaction.data.path.unlink(missing_ok=True)
        return batch.watermarks

    def _store(self, connection: Connection, batch: Batch) -> LogState:
        """Rows, notification and the new state, in one round trip but for the blocks of large transactions."""
        blocks = {watermark: _copy_blocks(connection, watermark, file) for watermark, file in batch.segments}
        if batch.last is None:
            return self._state
        with connection.pipeline(), connection.cursor() as cursor:
            cursor.executemany(_INSERT, [(*row[:6], blocks.get(row[0])) for row in batch.rows])
            self._notify(connection)
            return self._advance(connection, batch, batch.last)

    def _notify(self, connection: Connection) -> None:
        connection.execute("SELECT pg_notify(%s, '')", (self._address.channel,))

    def _advance(self, connection: Connection, batch: Batch, last: EncodedTransaction) -> LogState:
        before = self._state
        values = (batch.head, batch.head, batch.rows[-1][1], batch.schema, len(batch.rows))
        connection.execute(_ADVANCE, values)
        schema = before.schema if batch.schema is None else batch.schema
        count = before.transactions + len(batch.rows)
        return LogState(before.generation, self.epoch, batch.head, before.oldest, last.position, schema, count)

    def next_generation(self, above: str = EMPTY, proposed: str | None = None) -> str:
        """A watermark above `above` and all that this log ever named; `proposed` if that is."""
        with translated(self._address.where):
            row = self._connection.execute("SELECT highest FROM state").fetchone()
        assert row is not None
        return next_generation(row[0], above, proposed, self._now_us())

    def start_generation(
        self, watermark: str, position: Position, schema: str, directory: Path, created_ms: float
    ) -> SnapshotRecord:
        """Register a complete snapshot and drop everything before it."""
        text, generation = positions.to_text(position), self._state.generation + 1
        require_ahead(watermark, self._state.head)
        sync_directory(self._layout.spool)
        if self._remote is not None:
            self._remote.publish(directory)
        with self._transaction() as connection:
            for table in ("transactions", "segment_blocks", "snapshots"):
                connection.execute(f"DELETE FROM {table}".encode())
            row = (watermark, generation, text, schema, directory.name, created_ms)
            connection.execute("INSERT INTO snapshots VALUES (%s, %s, %s, %s, %s, %s)", row)
            connection.execute(_START, (generation, watermark, watermark, watermark, text, schema))
            self._notify(connection)
        self._state = LogState(generation, self.epoch, watermark, watermark, position, schema, 0)
        self._head_major = watermarks.to_int(watermark)[0]
        self._sweep()
        return SnapshotRecord(watermark, generation, position, schema, directory, created_ms)

    def add_snapshot(self, base: str, record: SnapshotRecord) -> bool:
        """Register a compacted snapshot, and let go of the files of those before it."""
        text, final = positions.to_text(record.position), self._layout.spool / record.watermark
        with self._transaction() as connection:
            known = [watermark for (watermark,) in connection.execute("SELECT watermark FROM snapshots").fetchall()]
            if not follows(record.watermark, base, known, self._state.head) or not self._is_published(record):
                return False
            if record.directory.is_dir():  # else it was made on another host, and is fetched when it is needed
                snapshots.adopt(record.directory, final)
            row = (record.watermark, self._state.generation, text, record.schema, final.name, record.created_ms)
            connection.execute("INSERT INTO snapshots VALUES (%s, %s, %s, %s, %s, %s)", row)
            self._notify(connection)
        self._sweep_spool()
        self._sweep_remote()
        return True

    def _is_published(self, record: SnapshotRecord) -> bool:
        return self._remote is None or self._remote.holds(record.watermark)

    def prune(self, below: str, at_most: int | None = None) -> int:
        """Forget transactions up to and including `below`, never beyond the head."""
        below = min(below, self._state.head)
        if below <= self._state.oldest:
            return 0
        with self._transaction() as connection:
            if at_most is not None:
                last = connection.execute(_NTH, (below, at_most - 1)).fetchone()
                below = last[0] if last else below
            gone = connection.execute("DELETE FROM transactions WHERE watermark <= %s", (below,)).rowcount
            connection.execute("DELETE FROM segment_blocks WHERE watermark <= %s", (below,))
            connection.execute("UPDATE state SET oldest = %s, transactions = transactions - %s", (below, gone))
        self._state = replace(self._state, oldest=below, transactions=self._state.transactions - gone)
        self._sweep_spool()
        return gone

    def _sweep_spool(self) -> None:
        sweep_spool(self._layout.spool, [snapshot.directory.name for snapshot in self.snapshots()])

    def _sweep_remote(self) -> None:
        if self._remote is not None:
            self._remote.sweep([snapshot.directory.name for snapshot in self.snapshots()][-1:])

    def _sweep(self) -> None:
        """Remove spool folders that no row names, and staged segments: what counts of those is in the log."""
        self._sweep_spool()
        self._sweep_remote()
        for file in self._layout.segments.iterdir():
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the connection; another writer may follow."""
        self._connection.close()


def _copy_blocks(connection: Connection, watermark: str, file: BlockFile) -> int:
    """Store a staged segment block by block; the number of blocks."""
    count = 0
    with connection.cursor() as cursor, cursor.copy(_COPY_BLOCKS) as copy:
        copy.set_types(_BLOCK_TYPES)
        for block in file.blocks():
            copy.write_row((watermark, count, block))
            count += 1
    return count
