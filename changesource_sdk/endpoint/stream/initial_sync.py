"""One initial sync: a snapshot and the log after it, as one transaction that ends at the log's head.

    begin(V) · the snapshot's tables, rows and indexes · what changed since · the tables every app needs · commit(V)

V is a replica version issued for this sync only (`changelog.coordination.consumers`). zero-cache accepts every kind of
change in the transaction of an initial sync, schema changes included, and a transaction costs it far more than a
change. So this is faster than sending the snapshot and then the transactions, and no consumer ever shows old rows. The
upstream is not read, and memory is bounded: snapshot and log are read and sent in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from changesource_sdk.changelog.envelope import begin_frame, commit_frame
from changesource_sdk.changelog.log import StoredTransaction

LOG_BYTES = 1024 * 1024
"""How much of the log is read at a time."""


@dataclass(slots=True)
class InitialSync:
    """An initial sync to be sent once. `chunks` reads files and the log: call it in a thread."""

    version: str
    # The snapshot's watermark; the log is retained from here on until the consumer acknowledges more.
    held: str
    # The log's head when the version was issued: the state that the consumer gets.
    head: str
    # Rows and changes read so far, for the metrics; grows while `chunks` is read.
    frames: int = 0

    def chunks(
        self,
        snapshot: Iterator[bytes],
        read_after: Callable[[str, int], list[StoredTransaction]],
        own_tables: list[bytes],
        now_ms: float,
    ) -> Iterator[bytes]:
        """All frames in chunks that end at frame boundaries. `read_after` raises if the log was reset."""
        yield begin_frame(self.version)
        yield from snapshot
        yield from self._changes(read_after)
        yield b"".join(own_tables)
        yield commit_frame(self.version, now_ms)

    def _changes(self, read_after: Callable[[str, int], list[StoredTransaction]]) -> Iterator[bytes]:
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
