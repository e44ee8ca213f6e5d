"""The writing side of a log: idempotent, fenced, durable when it returns. Written once, over any `Log`.

One call of `append` is one transaction of the backend, however many transactions of the upstream it holds; the caller
groups. Opening a writer takes a new epoch, and the backend compares it inside every transaction: a writer that was
replaced while it slept cannot write. Nothing but the newest writer changes the log, so what a writer reads before it
writes is still true then, or its write fails with `StaleWriter`. Files (segments, spool folders) are durable before the
row that names them is committed, and removed after the row is gone; leftovers of a kill are swept when a writer opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from changesource_sdk import positions
from changesource_sdk.changelog.batch import Batch
from changesource_sdk.changelog.dead_letters import DeadLetter, LetterEdit, Skip
from changesource_sdk.changelog.files.layout import sync_directory
from changesource_sdk.changelog.log import EncodedTransaction, Log, LogState, LogUpdate, SnapshotRecord
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.errors import InvalidChange, StaleWriter
from changesource_sdk.positions import Position
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
            # The state row as this writer last wrote it; it is the only one that does.
            self._state = log.take_over(files.highest())
            # The major number of the head, so that `append` need not parse it.
            self._head_major = watermarks.to_int(self._state.head)[0]
            # A log restored from an older copy must not use its numbers again for other transactions: what is appended
            # from here on is numbered from the clock, which is above all that was ever numbered before.
            self._floor = now_us()
            self._sweep()
            files.sweep_shared(self._named())
        except BaseException:
            log.close()
            raise

    def state(self) -> LogState:
        """Return the state row as this writer last wrote it."""
        return self._state

    def snapshots(self) -> list[SnapshotRecord]:
        """Return the snapshots of the current generation, oldest first."""
        return self._log.snapshots()

    def knows(self, position: Position) -> bool:
        """Whether a transaction with this position, or one beyond it, was appended in this generation."""
        return bool(self._known([(positions.to_text(position), position)]))

    def _known(self, candidates: Iterable[tuple[str, Position]]) -> dict[str, str]:
        """Return the watermarks of those positions that the log has, or had before pruning, by the positions' text."""
        state = self._state
        by_text = {text: position for text, position in candidates if not positions.is_ahead(position, state.position)}
        if not by_text:
            return {}
        known = self._log.known(list(by_text))
        for text, position in by_text.items():
            if text not in known and _was_appended(state, position):
                # Pruned since, and its watermark with it. Callers only need to know that it is not new.
                known[text] = state.oldest
        return known

    def append(self, transactions: Sequence[EncodedTransaction]) -> list[str]:
        """Make all of them durable, or none, and return the watermark of each.

        One whose position the log has already is not stored again and keeps its watermark. Raises `StaleWriter`, and
        `InvalidChange` where the adapter's watermarks do not increase.
        """
        texts = [positions.to_text(transaction.position) for transaction in transactions]
        known = self._known((text, each.position) for text, each in zip(texts, transactions, strict=True))
        batch = Batch(self._state.head, self._head_major, self._floor)
        for text, transaction in zip(texts, transactions, strict=True):
            batch.add(transaction, text, known.get(text))
        after = self._state if batch.last is None else self._after(batch, batch.last)
        self._log.write(
            LogUpdate(
                after,
                batch.rows,
                batch.segments,
                batch.schema,
                letters=batch.letters,
                skips=batch.skips,
                moves_position=batch.last is not None,
            )
        )
        self._state, self._head_major = after, batch.major
        for segment in batch.unneeded:
            segment.path.unlink(missing_ok=True)
        return batch.watermarks

    def _after(self, batch: Batch, last: EncodedTransaction) -> LogState:
        before = self._state
        return replace(
            before,
            head=batch.head,
            highest=max(before.highest, batch.head),
            position=last.position,
            schema=before.schema if batch.schema is None else batch.schema,
            transactions=before.transactions + len(batch.rows),
        )

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
        self._log.write(update)
        self._state, self._head_major = after, watermarks.to_int(watermark)[0]
        self._sweep()
        self._files.sweep_shared(self._named())
        return record

    def add_snapshot(self, base: str, record: SnapshotRecord) -> bool:
        """Register a snapshot that was made from snapshot `base` and the transactions up to its watermark.

        Its folder is moved into the spool. Returns False, with nothing changed, if the snapshot does not belong to the
        current generation, is older than another, or is incomplete.
        """
        known = [snapshot.watermark for snapshot in self.snapshots()]
        belongs = base in known and max(known) < record.watermark <= self._state.head
        if not belongs or not self._files.is_published(record.directory):
            return False
        final = self._files.layout.spool / record.watermark

        def adopt() -> None:
            # A snapshot of another host has no folder here; it is fetched from the spool when it is needed.
            if record.directory.is_dir():
                snapshots.adopt(record.directory, final)

        added = replace(record, generation=self._state.generation, directory=final)
        # A writer that was replaced must not move the folder: the newer one still takes it from there.
        self._log.write(LogUpdate(self._state, snapshot=added, before_commit=adopt))
        self._sweep()
        self._files.sweep_shared(self._named())
        return True

    def prune(self, below: str, at_most: int | None = None) -> int:
        """Delete transactions up to and including `below`, the oldest first and at most `at_most`; returns how many.

        `below` is limited to the head. The state's `oldest` becomes the last one deleted, or `below` if none is left
        up to there.
        """
        state = self._state
        below = min(below, state.head)
        if below <= state.oldest:
            return 0
        if at_most is None:
            count = self._log.count_after(state.oldest) - self._log.count_after(below)
        else:
            first = self._log.sizes(state.oldest, below, at_most)
            count = len(first)
            below = first[-1][0] if count == at_most else below
        after = replace(state, oldest=below, transactions=state.transactions - count)
        self._log.write(LogUpdate(after, forget_through=below))
        self._state = after
        self._sweep()
        return count

    def _named(self) -> list[str]:
        return [snapshot.directory.name for snapshot in self.snapshots()]

    def _sweep(self) -> None:
        self._files.sweep(self._named())

    def close(self) -> None:
        """Release the log; another writer may follow."""
        self._log.close()


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
