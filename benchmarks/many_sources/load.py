"""An upstream that makes transactions of one row by itself: all at once, or at a rate, once a file is there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from changesource_sdk import Column, Insert, Position, RowsPartition, Snapshot, Table, Transaction

BODY = "x" * 200


class LoadAdapter:
    """`count` transactions after the file `go` is there, `rate` per second (0: as fast as they are taken).

    `phase`, from 0 to 1, is how much of the time between two passes before the first.
    """

    poll_interval = 0.01

    def __init__(self, table: str, count: str, rate: str, phase: str, go: str) -> None:
        self._table = table
        self._count = int(count)
        self._rate = float(rate)
        self._phase = float(phase)
        self._go = Path(go)
        self._began = 0.0  # epoch seconds at which the file was seen; set by the first call of `changes` after it

    def tables(self) -> Sequence[Table]:
        return [Table(self._table, [Column("id", int), Column("body", str)])]

    def snapshot(self) -> Snapshot:
        return Snapshot(0, [RowsPartition(self._table, [])])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        if not self._began:
            if not self._go.exists():
                return
            self._began = float(self._go.read_text())
        for number in range(after + 1, self._count + 1):
            due = self._began + (number + self._phase) / self._rate if self._rate else time.time()
            time.sleep(max(0.0, due - time.time()))
            yield Transaction(number, [Insert(self._table, {"id": number, "body": BODY})], due * 1000)
