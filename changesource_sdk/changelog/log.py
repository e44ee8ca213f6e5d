"""The change log: whole transactions in order, durable, watermarked, framed for sending.

The pipeline appends to it (`writer.LogWriter`) and endpoints read it, in other processes or on other hosts. A backend
(SQLite on one host, Postgres for many) implements `Log`; everything else is written once over it.

Contract: what was appended is durable and visible to every reader; transactions appear whole, in watermark order,
without gaps or duplicates, whichever process is killed when. A *generation* is one snapshot of the upstream and the
transactions after it; a new one drops the transactions of the former and starts at a higher watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from changesource_sdk.changelog.dead_letters import KeptAside, LetterEdit, Skip
from changesource_sdk.changelog.envelope import begin_frame, commit_frame, data_frames
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.positions import Position
from protocol.watermark import EMPTY


@dataclass(frozen=True, slots=True)
class EncodedTransaction:
    """A validated transaction ready to append: its `data` frames, in memory or in a staged block file.

    `schema_after` is the log's schema (JSON text) if this transaction changes it. `watermark` is set only for
    upstreams that number their transactions themselves. `letters` are the rows that it sets aside or brings back,
    `skips` the requests of an operator that were carried out in it. One without frames moves the log's position only.
    """

    position: Position
    commit_time_ms: float | None
    watermark: str | None
    data: bytes | BlockFile
    changes: int
    schema_after: str | None = None
    letters: tuple[LetterEdit, ...] = ()
    skips: tuple[Skip, ...] = ()


class TransactionRow(NamedTuple):
    """A transaction as a backend stores it: all its `frames`, or the name and CRC-32 of a `segment` with its data.

    `position` is the text of the upstream position; `size` counts the bytes of all frames, in a segment or not.
    """

    watermark: str
    position: str
    commit_time_ms: float | None
    changes: int
    size: int
    frames: bytes | None
    segment: str | None
    segment_crc32: int | None


class Segment(Protocol):
    """The data frames of a transaction too large for memory."""

    def blocks(self) -> Iterator[bytes]:
        """Yield whole frames, one block at a time; raises `SnapshotGone` if they were deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class StoredTransaction:
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

    @classmethod
    def of_segment(
        cls, watermark: str, commit_time_ms: float | None, changes: int, size: int, segment: Segment
    ) -> StoredTransaction:
        """Make a transaction whose data are in a segment, with new `begin` and `commit` frames."""
        begin, commit = begin_frame(watermark), commit_frame(watermark, commit_time_ms)
        return cls(watermark, commit_time_ms, changes, size, None, begin, segment, commit)

    def chunks(self) -> Iterator[bytes]:
        """Yield the frames in order, in pieces that end at frame boundaries; a segment is read block by block."""
        if self.frames is not None:
            yield self.frames
            return
        yield self.begin
        if self.segment is not None:
            yield from self.segment.blocks()
        yield self.commit

    def data(self) -> Iterator[bytes]:
        """Yield the `data` frames alone, to be sent inside another transaction; in pieces like `chunks`."""
        if self.frames is not None:
            yield data_frames(self.frames)
        elif self.segment is not None:
            yield from self.segment.blocks()


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot that is registered in the log; its parts are in the spool, in `directory`."""

    watermark: str
    generation: int
    position: Position
    schema: str
    directory: Path
    created_ms: float


class SourceRow(NamedTuple):
    """What the log has of one named source, where several share it (`source_writer`).

    `position` is the text of its last position, None if the source must be read (again). `schema` is that of its own
    tables, "" if consumers have none. `epoch` fences its older writers, `reads` counts how often the source was read;
    rows are never deleted, so that both only grow. `fingerprint` identifies the mapping and prefix that its rows were
    made with.
    """

    name: str
    epoch: int = 0
    position: str | None = None
    schema: str = ""
    fingerprint: str = ""
    reads: int = 0

    @property
    def position_key(self) -> str:
        """What qualifies its positions in the log. An upstream that was restored may use its positions again, so those
        of a former read must not count.
        """
        return f"{self.name}:{self.reads}"


@dataclass(frozen=True, slots=True)
class LogState:
    """The state row of the log. A consumer can resume from any watermark with `oldest <= watermark <= head`.

    `generation` 0 means that no snapshot was ever completed. `position` and `schema` belong to `head`. `highest` is the
    highest watermark ever used; no new generation may start at or below it.
    """

    generation: int = 0
    epoch: int = 0
    # Both are `EMPTY` in a log that has no generation yet.
    head: str = EMPTY
    oldest: str = EMPTY
    position: Position = None
    schema: str = ""
    transactions: int = 0
    highest: str = EMPTY
    # The named sources that share the log, by name; none in a log of one upstream.
    sources: Mapping[str, SourceRow] = field(default_factory=dict)


def segment_prefix(source: str) -> str:
    """How the names of a source's segments begin; "" of a log of one upstream. Names of sources have no dot."""
    return f"{source}." if source else ""


class SourceRead(NamedTuple):
    """A source that was read as a whole: the transaction that brings its rows, and its row in the log after it."""

    row: SourceRow
    transaction: EncodedTransaction


class LogRange(NamedTuple):
    """The transactions above `after` up to and including `through`: how many, and the bytes of their frames."""

    after: str
    through: str
    transactions: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LogUpdate:
    """One atomic change of a log: the state afterwards, and what is inserted and deleted with it.

    `schema` is the new consumer schema, None if it stays. `segments` are the block files of those `rows` that have a
    segment, by watermark. `sources` are rows to replace. `before_commit` is called inside the transaction, after the
    epoch was compared: it moves files that only the newest writer may move.
    """

    state: LogState
    rows: Sequence[TransactionRow] = ()
    segments: Sequence[tuple[str, BlockFile]] = ()
    schema: str | None = None
    snapshot: SnapshotRecord | None = None
    sources: Sequence[SourceRow] = ()
    starts_generation: bool = False  # deletes all transactions and snapshots first, and what sources have
    forget_through: str | None = None  # deletes the transactions up to and including this watermark
    before_commit: Callable[[], None] | None = None
    letters: Sequence[LetterEdit] = ()  # applied in order, after a new generation has deleted all letters
    skips: Sequence[Skip] = ()
    moves_position: bool = False  # the state has a new position, with or without rows

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write; the epoch is compared all the same."""
        changes_rows = self.rows or self.snapshot is not None or self.forget_through is not None
        return not (changes_rows or self.moves_position or self.letters or self.skips or self.sources)

    @property
    def wakes_readers(self) -> bool:
        """Whether there is something new to read."""
        return bool(self.rows) or self.snapshot is not None


class Log(Protocol):
    """The transactions, snapshot records and state row of one log. Nothing is opened before the first call.

    An object that only reads is shared by threads. After `take_over` it is the writer and belongs to one thread.
    Failures are `StateError`s; a log that cannot be trusted any more is `CorruptLog`.
    """

    def state(self) -> LogState:
        """Return the state row, all of it read at one moment; that of an empty log if the log does not exist."""

    def snapshots(self) -> list[SnapshotRecord]:
        """Return the snapshots of the current generation, oldest first. The files of all but the newest may be gone."""

    def read_after(self, watermark: str, max_bytes: int) -> list[StoredTransaction]:
        """Return whole transactions above `watermark`, in order, up to `max_bytes`; at least one if there is one."""

    def sizes(self, first: str, through: str, at_most: int) -> list[tuple[str, int]]:
        """Return watermark and bytes of the first `at_most` transactions from `first` to `through`, both inclusive."""

    def count_after(self, watermark: str) -> int:
        """Count the transactions above `watermark`. Called for each consumer of `/statusz`, so it should be quick."""

    def known(self, positions: Sequence[str]) -> dict[str, str]:
        """Return the watermarks of those positions (as text) that a transaction or snapshot in the log has."""

    def kept_aside(self, at_most: int | None = None) -> KeptAside:
        """The rows that consumers did not get as they are upstream, and what operators skipped: the newest of each, or
        all. Empty in a log of a release that did not keep any.
        """

    def take_over(self, highest: str, source: str = "", epoch: int = 0) -> LogState:
        """Open the log for writing, create it if absent, and become its newest writer; returns the state.

        The epoch is increased by one, and the state's `highest` to at least `highest`. Staged segments that no
        transaction names are removed.

        With `source`, become the newest writer of that source only, under the pipeline that has this `epoch`: the
        source's own epoch goes up by one and is that of the state returned, which is without schema and sources. Raises
        `StaleWriter` if another pipeline took over.
        """

    def write(self, make: Callable[[LogState], LogUpdate], epoch: int, source: SourceRow | None = None) -> LogUpdate:
        """Apply an update in one transaction and return it; durable then, and readers are woken.

        `make` gets the state inside the transaction, without schema and sources, and may call `state` for these. Raises
        `StaleWriter`, with nothing changed, if another writer took over since: `epoch` is that of `take_over`, and
        `source`, if it is given, has that of its own.
        """

    def set_aside(self) -> str | None:
        """Rename a damaged log, so that the next writer starts an empty one; returns the name, None without a log."""

    def close(self) -> None:
        """Release connections and files."""
