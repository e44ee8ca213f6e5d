"""A read-only view of a log that ends at an earlier watermark, which can be moved forward.

A consumer without a replica gets the newest snapshot at or below the watermark the replay starts from, and the
transactions up to there; then what follows, as the window opens. Nothing is ever written to the log itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from changesource_sdk.changelog.dead_letters import KeptAside
from changesource_sdk.changelog.log import Log, LogState, LogUpdate, SnapshotRecord, SourceRow, StoredTransaction
from changesource_sdk.errors import StateError


@dataclass(slots=True)
class ReplayWindow:
    """The visible part of the log: from a snapshot up to and including `head`, which only `Opener` moves, forward."""

    snapshot: SnapshotRecord
    head: str


class WindowedLog:
    """A `Log` through a window. Invariant: nothing above `window.head` is shown, and nothing can be written."""

    def __init__(self, log: Log, window: ReplayWindow) -> None:
        self._log = log
        self._window = window

    def state(self) -> LogState:
        """A log that has forgotten the beginning of the replay has started over for its readers, too."""
        state = self._log.state()
        oldest = max(state.oldest, self._window.snapshot.watermark)
        return replace(state, head=self._window.head, oldest=oldest)

    def snapshots(self) -> list[SnapshotRecord]:
        return [self._window.snapshot]

    def read_after(self, watermark: str, max_bytes: int) -> list[StoredTransaction]:
        transactions = self._log.read_after(watermark, max_bytes)
        return [stored for stored in transactions if stored.watermark <= self._window.head]

    def sizes(self, first: str, through: str, at_most: int) -> list[tuple[str, int]]:
        return self._log.sizes(first, min(through, self._window.head), at_most)

    def count_after(self, watermark: str) -> int:
        return self._log.count_after(watermark) - self._log.count_after(max(watermark, self._window.head))

    def known(self, positions: Sequence[str]) -> dict[str, str]:
        return self._log.known(positions)

    def kept_aside(self, at_most: int | None = None) -> KeptAside:
        return self._log.kept_aside(at_most)

    def take_over(self, highest: str, source: str = "", epoch: int = 0) -> LogState:
        raise _read_only()

    def write(self, make: Callable[[LogState], LogUpdate], epoch: int, source: SourceRow | None = None) -> LogUpdate:
        raise _read_only()

    def set_aside(self) -> str | None:
        raise _read_only()

    def close(self) -> None:
        self._log.close()


def _read_only() -> StateError:
    return StateError("read-only", "a replay only reads the log", fix="run this on the log itself")
