"""A view of a log that ends earlier than the log: readers see its past as if it were now, and the end can be moved on.

A consumer that begins anew gets the newest snapshot at or below the watermark the replay starts from, and the
transactions up to there; then what follows, as the window opens. Nothing is ever written to the log itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from changesource_sdk.changelog.log import LogReader, LogState, Share, SnapshotRecord, Stored
from changesource_sdk.positions import Position


@dataclass(slots=True)
class Window:
    """What can be seen: from a snapshot up to and including `head`, which only grows."""

    snapshot: SnapshotRecord
    head: str


class WindowedReader:
    """A `LogReader` through a window. Invariant: nothing above `window.head` is shown."""

    def __init__(self, reader: LogReader, window: Window) -> None:
        self._reader = reader
        self._window = window

    @property
    def answers_at_once(self) -> bool:
        return self._reader.answers_at_once

    def state(self) -> LogState:
        return replace(self._reader.state(), head=self.head(), oldest=self.oldest())

    def head(self) -> str:
        return self._window.head

    def oldest(self) -> str:
        """A log that has forgotten the beginning of the replay has started over for its readers, too."""
        oldest = self._reader.oldest()
        return oldest if oldest > self._window.snapshot.watermark else self._window.snapshot.watermark

    def read_after(self, watermark: str, max_bytes: int) -> list[Stored]:
        found = self._reader.read_after(watermark, max_bytes)
        return [stored for stored in found if stored.watermark <= self._window.head]

    def shares(self, after: str, through: str, share_bytes: int) -> list[Share]:
        return self._reader.shares(after, min(through, self._window.head), share_bytes)

    def has(self, watermark: str) -> bool:
        return watermark <= self._window.head and self._reader.has(watermark)

    def count_after(self, watermark: str) -> int:
        return sum(share.transactions for share in self.shares(watermark, self._window.head, 1 << 62))

    def knows(self, position: Position) -> bool:
        return self._reader.knows(position)

    def snapshots(self) -> list[SnapshotRecord]:
        return [self._window.snapshot]

    def close(self) -> None:
        self._reader.close()
