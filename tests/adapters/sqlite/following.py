"""Reading a database step by step, for tests that look at single batches."""

from __future__ import annotations

import sqlite3

from adapters.sqlite.connection import open_database
from adapters.sqlite.settings import Selection
from adapters.sqlite.snapshot import take_snapshot
from adapters.sqlite.tail import SqliteTail
from changesource_sdk.adapter import Change
from changesource_sdk.positions import Position


class Follower:
    """A tail that starts at a snapshot taken now."""

    def __init__(self, path: str, **selection: object) -> None:
        self.path = path
        self.selection = Selection(**selection)  # type: ignore[arg-type]
        self.db: sqlite3.Connection = open_database(path)
        self.snapshot = take_snapshot(self.db, path, self.selection, None)
        if self.snapshot.close:
            self.snapshot.close()
        self.tail = self.resumed(self.snapshot.position)

    def resumed(self, position: Position) -> SqliteTail:
        return SqliteTail(open_database(self.path), self.path, self.selection, position)

    def batch(self) -> list[Change]:
        """The changes of exactly one batch; none is a failure."""
        transaction = self.tail.next_batch()
        assert transaction is not None
        changes = list(transaction.changes)
        assert self.tail.next_batch() is None
        return changes
