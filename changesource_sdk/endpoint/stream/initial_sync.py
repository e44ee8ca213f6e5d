"""One initial sync: a kept snapshot and the log after it, as one transaction that shows the log's head.

    begin(V) · the snapshot's tables, rows and indexes · what changed since · the tables every app needs · commit(V)

V is a replica version issued for this sync alone (`changelog.subscribers`). zero-cache takes every kind of change in
the transaction of an initial sync, schema changes included, and a transaction costs it far more than a change: this is
faster than the snapshot followed by its transactions, and no consumer ever shows rows of the past. The upstream is not
asked, and memory stays bounded: snapshot and log are read and sent piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.log import Stored

LOG_BYTES = 1024 * 1024
"""How much of the log is read at a time."""


@dataclass(slots=True)
class InitialSync:
    """An initial sync to be sent once. `chunks` reads files and the log: call it in a thread."""

    version: str
    # What the consumer holds until it acknowledges more: the log is kept from here on.
    held: str
    # The log's head when the version was issued: the state that the consumer gets.
    head: str
    # Rows and changes read so far, for the metrics; grows while `chunks` is read.
    frames: int = 0

    def chunks(
        self,
        snapshot: Iterator[bytes],
        read_after: Callable[[str, int], list[Stored]],
        own_tables: list[bytes],
        now_ms: float,
    ) -> Iterator[bytes]:
        """All frames in pieces that end at frame boundaries. `read_after` raises if the log no longer reaches back."""
        yield begin_frame(self.version)
        yield from snapshot
        yield from self._changes(read_after)
        yield b"".join(own_tables)
        yield commit_frame(self.version, now_ms)

    def _changes(self, read_after: Callable[[str, int], list[Stored]]) -> Iterator[bytes]:
        reached = self.held
        while reached < self.head:
            pieces: list[bytes] = []
            for stored in read_after(reached, LOG_BYTES):
                if stored.watermark > self.head:
                    break
                if stored.frames is None:
                    yield b"".join(pieces)
                    pieces = []
                    yield from stored.data()
                else:
                    pieces.extend(stored.data())
                self.frames += stored.changes
                reached = stored.watermark
            yield b"".join(pieces)
