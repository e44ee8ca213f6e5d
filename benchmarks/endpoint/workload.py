"""A store made of arithmetic: rows of eight columns as a snapshot, then transactions released on request.

It is an adapter like any other, served by `changesource serve benchmarks.endpoint.workload:Workload`, so what
is measured is the path users run. Transaction n (from 1) is in class `plan[k]`; it is yielded once the gate
file says that n are released, and carries the moment of its release as commit time, so that a consumer can tell
how long it was under way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Column, Insert, Position, Row, Snapshot, Table, Transaction

PARTITION_ROWS = 50_000
GATE_POLL_SECONDS = 0.005
ISSUE = Table(
    "issue",
    [
        Column("id", "int8"),
        Column("title", "text"),
        Column("body", "text"),
        Column("open", "bool"),
        Column("score", "float8"),
        Column("created", "timestamptz"),
        Column("labels", "json"),
        Column("owner", "text"),
    ],
)


def row(number: int) -> Row:
    """About 300 bytes as a protocol message."""
    return {
        "id": number,
        "title": f"Issue number {number}",
        "body": "Lorem ipsum dolor sit amet, consectetur adipiscing.",
        "open": number % 2 == 0,
        "score": number / 7,
        "created": 1_700_000_000_000 + number,
        "labels": ["bug", "p1"],
        "owner": f"user-{number % 1000}",
    }


@dataclass(frozen=True, slots=True)
class Rows:
    """A range of the snapshot."""

    first: int
    end: int
    table: str = "issue"

    def rows(self) -> Iterator[Row]:
        return map(row, range(self.first, self.end))


@dataclass(frozen=True, slots=True)
class Class:
    """A run of transactions of equal size."""

    size: int
    count: int

    @property
    def changes(self) -> int:
        return self.size * self.count


def parse_plan(text: str) -> list[Class]:
    """`1x5000,10x1000`: 5000 transactions of one row, then 1000 of ten."""
    parts = [part.partition("x") for part in text.split(",") if part]
    return [Class(int(size), int(count)) for size, _, count in parts]


class Gate:
    """A file that says how many transactions are released; moved into place whole, so never read half."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def release(self, number: int) -> None:
        staged = self.path.with_suffix(".staged")
        staged.write_text(str(number))
        staged.replace(self.path)

    def released(self) -> int:
        try:
            return int(self.path.read_text())
        except FileNotFoundError:
            return 0


class Workload:
    """The adapter. Positions are transaction numbers."""

    poll_interval = GATE_POLL_SECONDS

    def __init__(self, rows: str = "1000", plan: str = "", gate: str = "", pace: str = "0") -> None:
        self._rows = int(rows)
        self._plan = parse_plan(plan)
        self._gate = Gate(Path(gate))
        self._pace = float(pace)

    def tables(self) -> list[Table]:
        return [ISSUE]

    def snapshot(self) -> Snapshot:
        starts = range(0, self._rows, PARTITION_ROWS)
        return Snapshot(0, [Rows(start, min(start + PARTITION_ROWS, self._rows)) for start in starts])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        for number in range(after + 1, self._gate.released() + 1):
            yield self._transaction(number, *self._keys(number))

    def _keys(self, number: int) -> tuple[int, int]:
        """The first key of a transaction, and how many it inserts."""
        first, before = self._rows, 0
        for part in self._plan:
            if number <= before + part.count:
                return first + (number - before - 1) * part.size, part.size
            first += part.changes
            before += part.count
        raise ValueError(f"the plan has {before} transactions, number {number} was released")

    def _transaction(self, number: int, first: int, size: int) -> Transaction:
        if self._pace:
            time.sleep(self._pace)
        changes = [Insert("issue", row(key)) for key in range(first, first + size)]
        return Transaction(number, changes, commit_time_ms=time.time() * 1000)
