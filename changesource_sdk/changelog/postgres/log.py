"""The log in Postgres.

A reader's call is one statement on a connection that is opened again after it was lost, so a restart of the server
costs readers one error at most. A writer first locks the state row and compares the epoch, so a writer that was
replaced while it slept cannot write, and two writers never interleave. If the writer's connection is lost, an
uncommitted update is undone, and the next writer reads the state row. Large transactions are stored block by block and
read as they are sent, one block in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from changesource_sdk import positions as positions_as_text
from changesource_sdk.changelog.dead_letters import MOST_SKIPS, KeptAside, LetterEdit, kept_aside
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import (
    LogState,
    LogUpdate,
    SnapshotRecord,
    SourceRow,
    StoredTransaction,
    segment_prefix,
)
from changesource_sdk.changelog.postgres.connection import (
    SHARED_FORMAT,
    Connection,
    LogAddress,
    Session,
    add_new_tables,
    connect,
    rows_of,
    translated,
)
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.changelog.writer import fenced
from changesource_sdk.errors import SnapshotGone

SMALLEST_TRANSACTION = 64
"""No stored transaction has fewer bytes than this: its `begin` and `commit` frames have more."""

_STATE_COLUMNS = "format, generation, epoch, head, oldest, position, schema, transactions, highest"
_STATE = f"SELECT {_STATE_COLUMNS} FROM state"
_SNAPSHOTS = "SELECT watermark, generation, position, schema, directory, created_ms FROM snapshots ORDER BY watermark"
# The sizes are added up before any frames are fetched; the limit bounds that sum's work.
_READ = """SELECT watermark, commit_time_ms, changes, size, frames, blocks FROM (
  SELECT watermark, sum(size) OVER ahead AS total, row_number() OVER ahead AS number FROM (
    SELECT watermark, size FROM transactions WHERE watermark > %s ORDER BY watermark LIMIT %s) AS next
  WINDOW ahead AS (ORDER BY watermark)) AS summed
JOIN transactions USING (watermark) WHERE number = 1 OR total <= %s ORDER BY watermark"""
_SIZES = """SELECT watermark, size FROM transactions WHERE watermark >= %s AND watermark <= %s
ORDER BY watermark LIMIT %s"""
_KNOWN = """SELECT position, watermark FROM snapshots WHERE position = ANY(%s)
UNION ALL SELECT position, watermark FROM transactions
WHERE md5(position) IN (SELECT md5(wanted) FROM unnest(%s::text[]) AS wanted)"""
_TAKE_OVER = f"UPDATE state SET epoch = epoch + 1, highest = greatest(highest, %s) RETURNING {_STATE_COLUMNS}"
_CURRENT = """SELECT epoch, generation, head, oldest, position, transactions, highest FROM state FOR UPDATE"""
_SOURCES = "SELECT name, epoch, position, schema, fingerprint, reads FROM sources ORDER BY name"
_TAKE_OVER_SOURCE = """INSERT INTO sources AS known VALUES (%s, 1, NULL, '', '', 0)
ON CONFLICT (name) DO UPDATE SET epoch = known.epoch + 1 RETURNING epoch"""
_SAVE_SOURCE = "UPDATE sources SET position = %s, schema = %s, fingerprint = %s, reads = %s WHERE name = %s"
_INSERT = """INSERT INTO transactions (watermark, position, commit_time_ms, changes, size, frames, blocks)
VALUES (%s, %s, %s, %s, %s, %b, %s)"""
_COPY_BLOCKS = "COPY segment_blocks (watermark, number, block) FROM STDIN (FORMAT BINARY)"
_BLOCK_TYPES = ("text", "int4", "bytea")
_LETTERS = "SELECT source, table_name, letter FROM dead_letters ORDER BY id DESC LIMIT %s"
_COUNT_LETTERS = "SELECT table_name, outcome, count(*) FROM dead_letters GROUP BY 1, 2"
_SKIPS = "SELECT skip FROM skips ORDER BY id DESC LIMIT %s"
_PUT_LETTER = """INSERT INTO dead_letters (source, table_name, row_key, outcome, letter) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (source, table_name, row_key) DO UPDATE SET outcome = excluded.outcome, letter = excluded.letter"""
_SAVE = """UPDATE state SET generation = %s, head = %s, oldest = %s, highest = %s, position = %s,
schema = coalesce(%s, schema), transactions = %s"""


class PostgresLog:
    """A `Log` in one schema of a database; `layout` has the folders of snapshots and of staged segments."""

    def __init__(self, address: LogAddress, layout: StateDirectory) -> None:
        self._address = address
        self._layout = layout
        self._session = Session(address)
        # The writer's connection, set by `take_over`. It is never opened again: whether a lost connection committed its
        # last update is unknown, and a new writer finds out from the state row.
        self._writing: Connection | None = None

    def _rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if self._writing is None:
            return self._session.rows(query, parameters)
        with translated(self._address.where):
            return rows_of(self._writing, query, parameters)

    def state(self) -> LogState:
        """Read the state row, and the sources if it says that there are some."""
        row = self._rows(_STATE)[0]
        state = _state_of(row)
        if row[0] != SHARED_FORMAT:
            return state
        return replace(state, sources={each[0]: SourceRow(*each) for each in self._rows(_SOURCES)})

    def snapshots(self) -> list[SnapshotRecord]:
        """Read the table `snapshots`."""
        spool, parse = self._layout.spool, positions_as_text.from_text
        return [
            SnapshotRecord(watermark, generation, parse(position), schema, spool / folder, created)
            for watermark, generation, position, schema, folder, created in self._rows(_SNAPSHOTS)
        ]

    def read_after(self, watermark: str, max_bytes: int) -> list[StoredTransaction]:
        """Read in one statement; the blocks of large transactions are read later, as they are sent."""
        rows = self._rows(_READ, (watermark, max_bytes // SMALLEST_TRANSACTION + 1, max_bytes))
        return [self._stored(*row) for row in rows]

    def _stored(
        self, watermark: str, time: float | None, changes: int, size: int, frames: bytes | None, blocks: int | None
    ) -> StoredTransaction:
        if blocks is None:
            return StoredTransaction(watermark, time, changes, size, frames)
        segment = PostgresSegment(self._session, watermark, blocks)
        return StoredTransaction.of_segment(watermark, time, changes, size, segment)

    def sizes(self, first: str, through: str, at_most: int) -> list[tuple[str, int]]:
        """Read the sizes without the frames."""
        return [(watermark, size) for watermark, size in self._rows(_SIZES, (first, through, at_most))]

    def count_after(self, watermark: str) -> int:
        """Count the entries of the primary key."""
        return int(self._rows("SELECT count(*) FROM transactions WHERE watermark > %s", (watermark,))[0][0])

    def known(self, positions: Sequence[str]) -> dict[str, str]:
        """Look all positions up in one statement. Positions may be too long for an index, so it has their MD5."""
        wanted = list(positions)
        return dict(self._rows(_KNOWN, (wanted, wanted)))

    def kept_aside(self, at_most: int | None = None) -> KeptAside:
        """Rows of `dead_letters` and `skips`, the last first; the tables are bounded."""
        letters, counts = self._rows(_LETTERS, (at_most,)), self._rows(_COUNT_LETTERS)
        return kept_aside(letters, counts, self._rows(_SKIPS, (at_most,)))

    def take_over(self, highest: str, source: str = "", epoch: int = 0) -> LogState:
        """Connect, create the tables if they do not exist, and take a new epoch."""
        self._writing = connect(self._address)
        with translated(self._address.where):
            add_new_tables(self._writing, self._address.schema)
        if source:
            return self._take_over_source(self._writing, source, epoch)
        with translated(self._address.where):
            state = _state_of(rows_of(self._writing, _TAKE_OVER, (highest,))[0])
        self._sweep_segments()
        return state

    def _take_over_source(self, connection: Connection, source: str, epoch: int) -> LogState:
        with translated(self._address.where), connection.transaction():
            state = self._current(connection, epoch)
            ((source_epoch,),) = rows_of(connection, _TAKE_OVER_SOURCE, (source,))
            connection.execute("UPDATE state SET format = %s", (SHARED_FORMAT,))
        self._sweep_segments(segment_prefix(source))
        return replace(state, epoch=source_epoch)

    def _sweep_segments(self, prefix: str = "") -> None:
        """Remove staged segments: those that count are in the log."""
        for file in self._layout.segments.iterdir():
            if file.name.startswith(prefix):
                file.unlink(missing_ok=True)

    def write(self, make: Callable[[LogState], LogUpdate], epoch: int, source: SourceRow | None = None) -> LogUpdate:
        """One transaction, and in it the notification that wakes readers."""
        connection = self._writing
        assert connection is not None
        with translated(self._address.where), connection.transaction():
            current = self._current(connection, epoch)
            if source is not None:
                self._require_newest(connection, source)
            update = make(current)
            if update.before_commit is not None:
                update.before_commit()
            if not update.is_empty:
                self._apply(connection, update)
        for _, file in update.segments:
            file.path.unlink(missing_ok=True)
        if update.starts_generation:
            self._sweep_segments()
        return update

    def _current(self, connection: Connection, epoch: int) -> LogState:
        """Lock the state row and return it, without its schema; `StaleWriter` if the epoch is not the newest."""
        row = connection.execute(_CURRENT).fetchone()
        assert row is not None
        newest, generation, head, oldest, position, count, highest = row
        if newest != epoch:
            raise fenced(epoch, newest, self._address.where)
        known = positions_as_text.from_text(position)
        return LogState(generation, epoch, head, oldest, known, "", count, highest)

    def _require_newest(self, connection: Connection, source: SourceRow) -> None:
        row = connection.execute("SELECT epoch FROM sources WHERE name = %s", (source.name,)).fetchone()
        assert row is not None
        if row[0] != source.epoch:
            raise fenced(source.epoch, row[0], f"{self._address.where}, source {source.name}")

    def _apply(self, connection: Connection, update: LogUpdate) -> None:
        """All statements of an update in one round trip, but for the blocks of large transactions."""
        if update.segments:
            # Before the new blocks are there: a new generation deletes all.
            _delete(connection, update)
        blocks = {watermark: _copy_blocks(connection, watermark, file) for watermark, file in update.segments}
        with connection.pipeline(), connection.cursor() as cursor:
            if not update.segments:
                _delete(connection, update)
            if update.rows:
                cursor.executemany(_INSERT, [(*row[:6], blocks.get(row.watermark)) for row in update.rows])
            if (record := update.snapshot) is not None:
                connection.execute("INSERT INTO snapshots VALUES (%s, %s, %s, %s, %s, %s)", _snapshot_row(record))
            for edit in update.letters:
                _edit_letters(connection, edit)
            for skip in update.skips:
                connection.execute("INSERT INTO skips (source, skip) VALUES (%s, %s)", (skip.source, skip.to_text()))
                query = b"DELETE FROM skips WHERE id <= (SELECT max(id) FROM skips) - %s"
                connection.execute(query, (MOST_SKIPS,))
            for source in update.sources:
                connection.execute(_SAVE_SOURCE, (*source[2:], source.name))
            if update.wakes_readers:
                connection.execute("SELECT pg_notify(%s, '')", (self._address.channel,))
            state = update.state
            position = positions_as_text.to_text(state.position)
            watermarks = (state.head, state.oldest, state.highest)
            connection.execute(_SAVE, (state.generation, *watermarks, position, update.schema, state.transactions))

    def set_aside(self) -> str | None:
        """Rename the schema."""
        schema = self._address.schema
        with translated(self._address.where), connect(self._address) as connection:
            query = "SELECT count(*) + 1 FROM pg_namespace WHERE starts_with(nspname, %s)"
            row = connection.execute(query, (f"{schema}_corrupt_",)).fetchone()
            kept = f"{schema}_corrupt_{row[0] if row else 1}"
            connection.execute(f'ALTER SCHEMA "{schema}" RENAME TO "{kept}"'.encode())
        return kept

    def close(self) -> None:
        """Close the connections; another writer may follow."""
        self._session.close()
        if self._writing is not None:
            self._writing.close()
            self._writing = None


@dataclass(frozen=True, slots=True)
class PostgresSegment:
    """The data frames of one large transaction, as `count` blocks."""

    session: Session
    watermark: str
    count: int

    def blocks(self) -> Iterator[bytes]:
        """Yield the frames, one block at a time; raises `SnapshotGone` if the transaction is pruned meanwhile."""
        for number in range(self.count):
            query = "SELECT block FROM segment_blocks WHERE watermark = %s AND number = %s"
            rows = self.session.rows(query, (self.watermark, number))
            if not rows:
                raise SnapshotGone(
                    "frames-unreadable",
                    f"block {number} of transaction {self.watermark} is no longer in the log",
                    where=self.session.address.where,
                    fix="connect again",
                )
            yield bytes(rows[0][0])


def _state_of(row: tuple[Any, ...]) -> LogState:
    _, generation, epoch, head, oldest, position, schema, count, highest = row
    return LogState(generation, epoch, head, oldest, positions_as_text.from_text(position), schema, count, highest)


def _snapshot_row(record: SnapshotRecord) -> tuple[object, ...]:
    position = positions_as_text.to_text(record.position)
    return record.watermark, record.generation, position, record.schema, record.directory.name, record.created_ms


def _delete(connection: Connection, update: LogUpdate) -> None:
    if update.starts_generation:
        for table in ("transactions", "segment_blocks", "snapshots", "dead_letters"):
            connection.execute(f"DELETE FROM {table}".encode())
        connection.execute("UPDATE sources SET position = NULL, schema = '', fingerprint = ''")
    elif update.forget_through is not None:
        for table in ("transactions", "segment_blocks"):
            connection.execute(f"DELETE FROM {table} WHERE watermark <= %s".encode(), (update.forget_through,))


def _edit_letters(connection: Connection, edit: LetterEdit) -> None:
    if (letter := edit.letter) is not None:
        row = (letter.source, letter.table, letter.key, letter.outcome, letter.to_text())
        connection.execute(_PUT_LETTER, row)
    elif edit.key:
        query = "DELETE FROM dead_letters WHERE table_name = %s AND row_key = %s"
        connection.execute(query, (edit.table, edit.key))
    else:
        # A table of the new name had no letters: it did not exist.
        query = "UPDATE dead_letters SET table_name = %s WHERE table_name = %s"
        if edit.renamed:
            connection.execute(query, (edit.renamed, edit.table))
        else:
            connection.execute("DELETE FROM dead_letters WHERE table_name = %s", (edit.table,))


def _copy_blocks(connection: Connection, watermark: str, file: BlockFile) -> int:
    """Store a staged segment block by block; returns the number of blocks."""
    count = 0
    with connection.cursor() as cursor, cursor.copy(_COPY_BLOCKS) as copy:
        copy.set_types(_BLOCK_TYPES)
        for block in file.blocks():
            copy.write_row((watermark, count, block))
            count += 1
    return count
