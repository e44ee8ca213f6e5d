"""The smallest complete adapter: the tables of a `MemoryStore`. Read it before you write your own.

The position is the number of committed transactions. From the command line: `--set file=data.json` (`store.load`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adapters.memory.store import MemoryStore, load
from changesource_sdk import Position, ResyncRequired, RowsPartition, Snapshot, Table, Transaction


class MemoryAdapter:
    """Reads a `MemoryStore`: the one that is passed, or one with the rows of `file`."""

    poll_interval = 0.0  # `changes` waits for commits itself

    def __init__(self, file: str = "", store: MemoryStore | None = None) -> None:
        self.store = store or load(file)
        self._closed = False  # set by `close`, in any thread, under `store.changed`; ends the wait in `changes`

    def tables(self) -> Sequence[Table]:
        return list(self.store.tables.values())

    def snapshot(self) -> Snapshot:
        """All rows, their tables and the position at which they were read, under one lock."""
        with self.store.changed:
            partitions = [RowsPartition(table, list(rows.values())) for table, rows in self.store.rows.items()]
            return Snapshot(len(self.store.history), partitions, self.tables())

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The transactions after a position; waits up to a second for one.

        Raises `ResyncRequired` for an unknown position.
        """
        with self.store.changed:
            position = self._known(after)
            self.store.changed.wait_for(lambda: self._closed or len(self.store.history) > position, timeout=1.0)
            new = self.store.history[position:]
        for number, (commit_time_ms, batch) in enumerate(new, start=position + 1):
            yield Transaction(number, batch, commit_time_ms)

    def head(self) -> Position:
        """The position of the last commit."""
        with self.store.changed:
            return len(self.store.history)

    def _known(self, position: Position) -> int:
        if isinstance(position, int) and position <= len(self.store.history):
            return position
        raise ResyncRequired(
            "position-lost",
            f"the position {position!r} was not made by this store",
            fix="nothing to do: the upstream is read again from the start and consumers are reset",
        )

    def close(self) -> None:
        """Make `changes` return, from any thread."""
        with self.store.changed:
            self._closed = True
            self.store.changed.notify_all()
