"""The writing side of a log: idempotent, fenced, durable when it returns. Written once, over any `Log`.

One call of `append` is one transaction of the backend, however many transactions of the upstream it holds; the caller
groups. Opening a writer takes a new epoch, and the backend compares it inside every transaction: a writer that was
replaced while it slept cannot write. Nothing but the newest writer changes the log, so what a writer reads before it
writes is still true then, or its write fails with `StaleWriter`. Only where several sources share the log does its head
move meanwhile (`source_writer`), so the head is read inside the transaction.

Files (segments, spool folders) are durable before the row that names them is committed, and removed after the row is
gone; leftovers of a kill are swept when a writer opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from changesource_sdk import positions
from changesource_sdk.changelog.batch import Batch
from changesource_sdk.changelog.dead_letters import DeadLetter, LetterEdit, Skip
from changesource_sdk.changelog.files.layout import sync_directory
from changesource_sdk.changelog.log import (
    EncodedTransaction,
    Log,
    LogState,
    LogUpdate,
    SnapshotRecord,
    SourceRead,
    SourceRow,
)
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.errors import InvalidChange, StaleWriter
from changesource_sdk.positions import Position, of_source
from protocol import watermark as watermarks
from protocol.watermark import EMPTY


class LogWriter:
    """The writer of one log; used from one thread. A later writer fences this one off: `StaleWriter`.

    Invariant: the state row always describes the last transaction. `now_us` is the clock, in epoch microseconds.
    """

    def __init__(self, log: Log, files: SnapshotFiles, now_us: Callable[[], int]) -> None:
        self._log = log
        self._files = files
        self._now_us = now_us
        try:
            # The state row as this writer last wrote it; writers of named sources may have moved the head since.
            self._state = log.take_over(files.highest())
            # The major number of the head, so that `append` need not parse it.
            self._head_major = watermarks.to_int(self._state.head)[0]
            # A log restored from an older copy must not use its numbers again for other transactions: what is appended
            # from here on is numbered from the clock, which is above all that was ever numbered before.
            self._floor = now_us()
            self._sweep_all()
        except BaseException:
            log.close()
            raise

    @property
    def position_key(self) -> str:
        """What qualifies positions in the log: nothing, where it has one source."""
        return ""

    def state(self) -> LogState:
        """Return the state row as this writer last wrote it."""
        return self._state

    def snapshots(self) -> list[SnapshotRecord]:
        """Return the snapshots of the current generation, oldest first."""
        return self._log.snapshots()

    def head(self) -> str:
        """The newest watermark, which writers of named sources may have appended."""
        return self._log.state().head

    def sources(self) -> Mapping[str, SourceRow]:
        """The named sources that share the log, by name."""
        return self._log.state().sources

    def knows(self, position: Position) -> bool:
        """Whether a transaction with this position, or one beyond it, was appended in this generation."""
        return bool(known_watermarks(self._log, self._state, [(positions.to_text(position), position)]))

    def append(self, transactions: Sequence[EncodedTransaction]) -> list[str]:
        """Make all of them durable, or none, and return the watermark of each.

        One whose position the log has already is not stored again and keeps its watermark. Raises `StaleWriter`, and
        `InvalidChange` where the adapter's watermarks do not increase.
        """
        texts = [positions.to_text(transaction.position) for transaction in transactions]
        candidates = [(text, each.position) for text, each in zip(texts, transactions, strict=True)]
        known = known_watermarks(self._log, self._state, candidates)
        batch = Batch(self._state.head, self._head_major, self._floor)
        for text, transaction in zip(texts, transactions, strict=True):
            batch.add(transaction, text, known.get(text))

        def make(current: LogState) -> LogUpdate:
            after = state_after(current, batch)
            if batch.last is not None:
                after = replace(after, position=batch.last.position)
            return LogUpdate(
                after,
                batch.rows,
                batch.segments,
                batch.schema,
                letters=batch.letters,
                skips=batch.skips,
                moves_position=batch.last is not None,
            )

        self._write(make)
        self._head_major = batch.major
        for segment in batch.unneeded:
            segment.path.unlink(missing_ok=True)
        return batch.watermarks

    def _write(self, make: Callable[[LogState], LogUpdate]) -> None:
        written = self._log.write(make, self._state.epoch)
        schema = self._state.schema if written.schema is None else written.schema
        self._state = replace(written.state, schema=schema)

    def next_generation(self, above: str = EMPTY, proposed: str | None = None) -> str:
        """Return a watermark for a new snapshot, above `above` and all that this log ever used.

        It is `proposed` if that is high enough, and the next free number otherwise. Without a proposal it comes from
        the clock, so that it is also above what a lost log used. Its major number is a new one: minor numbers of the
        old ones may have been issued to consumers (`consumers.next_version`).
        """
        next_major = watermarks.to_int(max(self._state.highest, above))[0] + 1
        if proposed is None:
            return watermarks.from_int(max(next_major, self._now_us()))
        is_above = watermarks.to_int(watermarks.validate(proposed))[0] >= next_major
        return proposed if is_above else watermarks.from_int(next_major)

    def start_generation(
        self,
        watermark: str,
        position: Position,
        schema: str,
        directory: Path,
        created_ms: float,
        letters: Iterable[DeadLetter] = (),
        skips: Iterable[Skip] = (),
    ) -> SnapshotRecord:
        """Register a complete snapshot as a new generation and drop the transactions before it.

        `letters` are the rows that the snapshot left out; they replace all earlier ones.
        """
        before = self._state
        if watermark <= before.head:
            raise InvalidChange(
                "snapshot-not-ahead",
                f"a snapshot at {watermark} cannot follow a log whose head is {before.head}",
                fix="take the watermark from next_generation()",
            )
        sync_directory(self._files.layout.spool)
        self._files.publish(directory)
        record = SnapshotRecord(watermark, before.generation + 1, position, schema, directory, created_ms)
        after = LogState(record.generation, before.epoch, watermark, watermark, position, schema, 0, watermark)
        edits = [LetterEdit(letter.table, letter.key, letter) for letter in letters]
        carried_out = [replace(skip, watermark=watermark) for skip in skips]
        update = LogUpdate(
            after, schema=schema, snapshot=record, starts_generation=True, letters=edits, skips=carried_out
        )
        self._write(lambda _: update)
        self._head_major = watermarks.to_int(watermark)[0]
        self._sweep_all()
        return record

    def start_shared_generation(
        self, directory: Path, created_ms: float, reads: Sequence[SourceRead], schema: str
    ) -> SnapshotRecord:
        """Start a generation with the empty snapshot in `directory`, which is named by its watermark, and one
        transaction for each source that was read, all in one commit. `schema` is that of these sources together. All
        other sources have to be read later.
        """
        sync_directory(self._files.layout.spool)
        self._files.publish(directory)
        watermark = directory.name
        record = SnapshotRecord(watermark, self._state.generation + 1, None, "", directory, created_ms)
        batch = self._batch(reads, watermark)
        began = LogState(record.generation, self._state.epoch, watermark, watermark, highest=watermark)
        after = replace(state_after(began, batch), schema=schema)
        rows = [read.row for read in reads]

        def make(_: LogState) -> LogUpdate:
            return LogUpdate(
                after,
                batch.rows,
                batch.segments,
                schema,
                record,
                rows,
                starts_generation=True,
                letters=batch.letters,
                skips=batch.skips,
            )

        self._write(make)
        self._head_major = batch.major
        self._sweep_all()
        return record

    def append_shared(self, read: SourceRead, rows: Sequence[SourceRow], schema: str) -> str:
        """Append the owner's own transaction to a log that sources share, and replace rows of sources; its watermark.
        Called while no source writes. The schema of all sources is `schema` from then on.
        """
        batch = self._batch([read], self._state.head)

        def make(current: LogState) -> LogUpdate:
            return LogUpdate(
                replace(state_after(current, batch), position=None), batch.rows, batch.segments, schema, sources=rows
            )

        self._write(make)
        self._head_major = batch.major
        return batch.head

    def _batch(self, reads: Sequence[SourceRead], head: str) -> Batch:
        batch = Batch(head, watermarks.to_int(head)[0], self._floor)
        for read in reads:
            batch.add(read.transaction, of_source(read.row.position_key, read.transaction.position), None)
        return batch

    def add_snapshot(self, base: str, record: SnapshotRecord) -> bool:
        """Register a snapshot that was made from snapshot `base` and the transactions up to its watermark.

        Its folder is moved into the spool. Returns False, with nothing changed, if the snapshot does not belong to the
        current generation, is older than another, or is incomplete.
        """
        known = [snapshot.watermark for snapshot in self.snapshots()]
        belongs = base in known and max(known) < record.watermark <= self._log.state().head
        if not belongs or not self._files.is_published(record.directory):
            return False
        final = self._files.layout.spool / record.watermark

        def adopt() -> None:
            # A snapshot of another host has no folder here; it is fetched from the spool when it is needed.
            if record.directory.is_dir():
                snapshots.adopt(record.directory, final)

        added = replace(record, generation=self._state.generation, directory=final)
        # A writer that was replaced must not move the folder: the newer one still takes it from there.
        self._write(lambda current: LogUpdate(current, snapshot=added, before_commit=adopt))
        self._sweep_all()
        return True

    def prune(self, below: str, at_most: int | None = None) -> int:
        """Delete transactions up to and including `below`, the oldest first and at most `at_most`; returns how many.

        `below` is limited to the head. The state's `oldest` becomes the last one deleted, or `below` if none is left
        up to there.
        """
        if below <= self._state.oldest:
            return 0
        # Read again: writers of named sources may have moved the head.
        state = self._log.state()
        below = min(below, state.head)
        if below <= state.oldest:
            return 0
        if at_most is None:
            count = self._log.count_after(state.oldest) - self._log.count_after(below)
        else:
            first = self._log.sizes(state.oldest, below, at_most)
            count = len(first)
            below = first[-1][0] if count == at_most else below

        def make(current: LogState) -> LogUpdate:
            after = replace(current, oldest=below, transactions=current.transactions - count)
            return LogUpdate(after, forget_through=below)

        self._write(make)
        self._sweep()
        return count

    def _named(self) -> list[str]:
        return [snapshot.directory.name for snapshot in self.snapshots()]

    def _sweep(self) -> None:
        self._files.sweep(self._named())

    def _sweep_all(self) -> None:
        self._sweep()
        self._files.sweep_shared(self._named())

    def close(self) -> None:
        """Release the log; another writer may follow."""
        self._log.close()


def known_watermarks(log: Log, state: LogState, candidates: Iterable[tuple[str, Position]]) -> dict[str, str]:
    """The watermarks of those positions (with their text in the log) that the log holds, or once held, by text.

    `state.position` is the newest of their source.
    """
    by_text = {text: position for text, position in candidates if not positions.is_ahead(position, state.position)}
    if not by_text:
        return {}
    known = log.known(list(by_text))
    for text, position in by_text.items():
        if text not in known and _was_appended(state, position):
            # Pruned since. Its own watermark is lost; nobody needs more of it than that it is not a new one.
            known[text] = state.oldest
    return known


def state_after(before: LogState, batch: Batch) -> LogState:
    """The state after the transactions of a batch, but for position and schema."""
    transactions = before.transactions + len(batch.rows)
    return replace(before, head=batch.head, highest=max(before.highest, batch.head), transactions=transactions)


def _was_appended(state: LogState, position: Position) -> bool:
    """Whether a position that is not stored was appended in this generation and pruned since."""
    return state.generation > 0 and (position == state.position or positions.is_behind(position, state.position))


def fenced(mine: int, newest: int, where: str) -> StaleWriter:
    """Return the error for a writer that was replaced; for backends."""
    return StaleWriter(
        "writer-fenced",
        f"this writer has epoch {mine}, but a writer with epoch {newest} took over",
        where=where,
        fix="run one pipeline per log; this one stops",
    )
