"""The reading side of a log kept in Postgres.

Each call is one statement on a connection that mends itself, so a server that restarts costs readers one error or none.
Large transactions are stored block by block and read as they are sent, one block in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk import positions
from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.log import LogState, Share, SnapshotRecord, Stored
from changesource_sdk.changelog.postgres.connection import LogAddress, Session
from changesource_sdk.changelog.shares import cut
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.positions import Position

SMALLEST_TRANSACTION = 64
"""Bytes below which no stored transaction is: an empty `begin` and `commit` take more."""

STATE_COLUMNS = "generation, epoch, head, oldest, position, schema, transactions"
STATE = f"SELECT {STATE_COLUMNS} FROM state"
SNAPSHOTS = "SELECT watermark, generation, position, schema, directory, created_ms FROM snapshots ORDER BY watermark"
# The sizes are added up before any frames are fetched; the limit bounds that sum's work.
_READ = """SELECT watermark, commit_time_ms, changes, size, frames, blocks FROM (
  SELECT watermark, sum(size) OVER ahead AS total, row_number() OVER ahead AS number FROM (
    SELECT watermark, size FROM transactions WHERE watermark > %s ORDER BY watermark LIMIT %s) AS next
  WINDOW ahead AS (ORDER BY watermark)) AS summed
JOIN transactions USING (watermark) WHERE number = 1 OR total <= %s ORDER BY watermark"""


class PostgresLogReader:
    """A `LogReader` over one log; threads may share it."""

    answers_at_once = False

    def __init__(self, address: LogAddress, spool: Path) -> None:
        self._session = Session(address)
        self._spool = spool

    def state(self) -> LogState:
        """Where the log stands."""
        return state_of(self._session.rows(STATE))

    def head(self) -> str:
        """The newest watermark."""
        return str(self._session.rows("SELECT head FROM state")[0][0])

    def oldest(self) -> str:
        """The lowest watermark to resume from."""
        return str(self._session.rows("SELECT oldest FROM state")[0][0])

    def read_after(self, watermark: str, max_bytes: int) -> list[Stored]:
        """Whole transactions above `watermark`: at least one if there is one, then up to `max_bytes`."""
        rows = self._session.rows(_READ, (watermark, max_bytes // SMALLEST_TRANSACTION + 1, max_bytes))
        return [self._stored(*row) for row in rows]

    def _stored(
        self, watermark: str, time: float | None, changes: int, size: int, frames: bytes | None, blocks: int | None
    ) -> Stored:
        if blocks is None:
            return Stored(watermark, time, changes, size, frames)
        segment = PostgresSegment(self._session, watermark, blocks)
        begin, commit = begin_frame(watermark), commit_frame(watermark, time)
        return Stored(watermark, time, changes, size, None, begin, segment, commit)

    def has(self, watermark: str) -> bool:
        """Whether a transaction with exactly this watermark is in the log."""
        return bool(self._session.rows("SELECT 1 FROM transactions WHERE watermark = %s", (watermark,)))

    def count_after(self, watermark: str) -> int:
        """How many transactions there are above `watermark`."""
        return int(self._session.rows("SELECT count(*) FROM transactions WHERE watermark > %s", (watermark,))[0][0])

    def knows(self, position: Position) -> bool:
        """Whether a transaction with this position is in the log."""
        text = positions.to_text(position)
        query = "SELECT 1 FROM transactions WHERE md5(position) = md5(%s::text) AND position = %s"
        return bool(self._session.rows(query, (text, text)))

    def shares(self, after: str, through: str, share_bytes: int) -> list[Share]:
        """The transactions above `after` up to `through`, cut into shares of about so many bytes."""
        query = "SELECT watermark, size FROM transactions WHERE watermark > %s AND watermark <= %s ORDER BY watermark"
        return cut(after, self._session.rows(query, (after, through)), share_bytes)

    def snapshots(self) -> list[SnapshotRecord]:
        """The snapshots of the current generation."""
        return snapshots_of(self._session.rows(SNAPSHOTS), self._spool)

    def close(self) -> None:
        """Release the connection."""
        self._session.close()


@dataclass(frozen=True, slots=True)
class PostgresSegment:
    """The data frames of one large transaction, as `count` blocks."""

    session: Session
    watermark: str
    count: int

    def blocks(self) -> Iterator[bytes]:
        """The frames, one block at a time; `SnapshotGone` if the transaction is forgotten meanwhile."""
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


def state_of(rows: list[tuple[int, int, str, str, str, str, int]]) -> LogState:
    """The state row as stored."""
    generation, epoch, head, oldest, position, schema, count = rows[0]
    return LogState(generation, epoch, head, oldest, positions.from_text(position), schema, count)


def snapshots_of(rows: list[tuple[str, int, str, str, str, float]], spool: Path) -> list[SnapshotRecord]:
    """The registered snapshots, oldest first."""
    return [
        SnapshotRecord(watermark, generation, positions.from_text(position), schema, spool / folder, created)
        for watermark, generation, position, schema, folder, created in rows
    ]
