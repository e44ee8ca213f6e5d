"""A store that is a function of its position: transaction n inserts row n, for ever. The victim's store in kill loops.

Every tenth transaction is large enough to be spilled. The whole history is known, so what a log should hold is too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Change, Insert, Position, Row, Snapshot, Table, Transaction
from changesource_sdk.schema import Column

PARTITION_ROWS = 500
LARGE_EVERY = 10
LARGE_ROWS = 300


@dataclass(frozen=True, slots=True)
class Range:
    """Rows `first` to `last`, both included."""

    table: str
    first: int
    last: int

    def rows(self) -> Iterable[Row]:
        return ({"id": number, "copy": 0} for number in range(self.first, self.last + 1))


class CountingAdapter:
    """Keeps the last acknowledged position in a file, and never gives what was acknowledged: the store forgot it."""

    poll_interval = 0.001

    def __init__(self, acknowledged: str) -> None:
        self._file = Path(acknowledged)

    def _forgotten(self) -> int:
        return int(self._file.read_text() or 0) if self._file.exists() else 0

    def tables(self) -> Sequence[Table]:
        return [Table("row", [Column("id", int), Column("copy", int)], key=("id", "copy"))]

    def snapshot(self) -> Snapshot:
        position = max(2000, self._forgotten())
        starts = range(1, position + 1, PARTITION_ROWS)
        parts = [Range("row", start, min(start + PARTITION_ROWS - 1, position)) for start in starts]
        return Snapshot(position, parts)

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        assert after >= self._forgotten(), "asked for what was acknowledged"
        # One earlier than asked: readers are allowed to repeat themselves.
        for number in range(after, after + 50):
            yield Transaction(number, self._changes(number))

    def _changes(self, number: int) -> Iterator[Change]:
        for copy in range(copies(number)):
            yield Insert("row", {"id": number, "copy": copy})

    def acknowledge(self, position: Position) -> None:
        staged = self._file.with_suffix(".staged")
        staged.write_text(str(position))
        staged.replace(self._file)


def copies(number: int) -> int:
    """How many rows transaction `number` inserts."""
    return LARGE_ROWS if number % LARGE_EVERY == 0 else 1
