"""The change log: whole transactions in order, durable, watermarked, framed for sending.

This is the seam between the pipeline, which appends, and endpoints, which read. A store of the log (SQLite on one
host, Postgres for many) implements `LogReader` and `LogWriter`. Readers and the writer may live in different processes;
a wake-up (`changelog.store.Ear`) tells readers that the head moved.

Contract: what `append` returned is durable and is seen by every reader from then on; transactions appear whole, in
watermark order, without gaps or doubles, whatever was killed when. A *generation* is one snapshot of the store and the
transactions after it; a new one drops the transactions of the former and starts at a higher watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from changesource_sdk.changelog.envelope import data_frames
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.positions import Position
from protocol.watermark import EMPTY


@dataclass(frozen=True, slots=True)
class EncodedTransaction:
    """A validated transaction ready to append: the `data` frames, in memory or spilled to a staged block file.

    `schema_after` is the consumer's schema (JSON text) if this transaction changes it. `watermark` is set only by
    stores that bring their own.
    """

    position: Position
    commit_time_ms: float | None
    watermark: str | None
    data: bytes | BlockFile
    changes: int
    schema_after: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A whole transaction as stored: `begin` frame, data frames, `commit` frame.

    `frames` holds all of it, or is None for a large one whose data are in `segment`. Use `chunks()` for either.
    """

    watermark: str
    commit_time_ms: float | None
    changes: int
    size: int
    frames: bytes | None
    begin: bytes = b""
    segment: Segment | None = None
    commit: bytes = b""

    def chunks(self) -> Iterator[bytes]:
        """The frames in order, in pieces that end at frame boundaries; large transactions are read block by block."""
        if self.frames is not None:
            yield self.frames
            return
        yield self.begin
        if self.segment is not None:
            yield from self.segment.blocks()
        yield self.commit

    def data(self) -> Iterator[bytes]:
        """The `data` frames alone, to be sent inside another transaction; in pieces like `chunks`."""
        if self.frames is not None:
            yield data_frames(self.frames)
        elif self.segment is not None:
            yield from self.segment.blocks()


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot that the log knows; its rows are in the spool under `directory`."""

    watermark: str
    generation: int
    position: Position
    schema: str
    directory: Path
    created_ms: float


@dataclass(frozen=True, slots=True)
class LogState:
    """Where the log stands. A consumer can resume from any watermark with `oldest <= watermark <= head`.

    `generation` 0 means that no snapshot was ever completed. `position` and `schema` belong to `head`.
    """

    generation: int = 0
    epoch: int = 0
    # Both are `EMPTY` in a log that has no generation yet.
    head: str = EMPTY
    oldest: str = EMPTY
    position: Position = None
    schema: str = ""
    transactions: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """The transactions above `after` up to and including `through`: how many, and the bytes of their frames."""

    after: str
    through: str
    transactions: int
    bytes: int


class Segment(Protocol):
    """The data frames of a transaction too large for memory."""

    def blocks(self) -> Iterator[bytes]:
        """Whole frames, one block at a time; `SnapshotGone` if they are no longer there."""


class LogReader(Protocol):
    """The reading side; safe to call from several threads."""

    @property
    def answers_at_once(self) -> bool:
        """Whether a small read is so quick and sure that an event loop may wait for it."""

    def state(self) -> LogState:
        """Everything about where the log stands, read at once."""

    def head(self) -> str:
        """The newest watermark: that of the last transaction, or of the snapshot if none followed it."""

    def oldest(self) -> str:
        """The lowest watermark a consumer can resume from."""

    def read_after(self, watermark: str, max_bytes: int) -> list[Stored]:
        """Whole transactions above `watermark`, in order: at least one if there is one, then up to `max_bytes`."""

    def shares(self, after: str, through: str, share_bytes: int) -> list[Share]:
        """The transactions above `after` up to `through`, cut into shares of about so many bytes, without reading
        them.
        """

    def has(self, watermark: str) -> bool:
        """Whether a transaction with exactly this watermark is in the log."""

    def count_after(self, watermark: str) -> int:
        """How many transactions there are above `watermark`."""

    def knows(self, position: Position) -> bool:
        """Whether a transaction with this position is in the log."""

    def snapshots(self) -> list[SnapshotRecord]:
        """The snapshots of the current generation, oldest first; only the newest is sure to have its files."""

    def close(self) -> None:
        """Release the store."""


class LogWriter(Protocol):
    """The writing side; used from one thread. A later writer fences this one off: `StaleWriter`."""

    def state(self) -> LogState:
        """Where the log stands, as this writer sees it."""

    def snapshots(self) -> list[SnapshotRecord]:
        """The snapshots of the current generation, oldest first."""

    def knows(self, position: Position) -> bool:
        """Whether a transaction with this position, or one beyond it, was appended in this generation."""

    def append(self, transactions: Sequence[EncodedTransaction]) -> list[str]:
        """Make all of them durable, or none; the watermark of each. One already there keeps the watermark it has."""

    def next_generation(self, above: str = EMPTY, proposed: str | None = None) -> str:
        """A watermark for a new snapshot: above everything this log or `above` ever named."""

    def start_generation(
        self, watermark: str, position: Position, schema: str, directory: Path, created_ms: float
    ) -> SnapshotRecord:
        """Register a complete snapshot as a new generation and drop the transactions before it."""

    def add_snapshot(self, base: str, record: SnapshotRecord) -> bool:
        """Register a snapshot made of snapshot `base` and the transactions up to its watermark; its folder is moved
        into the spool. False, and nothing done, if `base` is no snapshot of the current generation.
        """

    def prune(self, below: str, at_most: int | None = None) -> int:
        """Forget transactions up to and including `below`, the oldest `at_most` of them; the number forgotten. The
        last one forgotten, or `below` if none is left below it, becomes the oldest.
        """

    def close(self) -> None:
        """Release the store."""
