"""The adapter. This example serves a file of JSON lines, each of them a transaction; make it serve your upstream.

    {"removed": ["id", …], "written": [{"id": …, "title": …}, …]}

It must provide one consistent snapshot with its position, and the complete transactions after any position, in order.
It may be created again from its settings at any time. A transaction that it yields twice is stored once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changesource_sdk import (
    Change,
    Delete,
    Insert,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    position_lost,
    table_of,
)


@dataclass
class Item:
    """A row: annotations become columns, `| None` makes one optional."""

    id: str
    title: str
    amount: float | None = None
    is_done: bool | None = None
    extra: dict[str, object] | None = None


class MyStore:
    """A file of JSON lines. The position of a transaction is the file's number and where in it the next one begins."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def tables(self) -> Sequence[Table]:
        """The tables to sync."""
        return [table_of(Item)]

    def snapshot(self) -> Snapshot:
        """All rows as they are now, and the position at which the transactions after them begin."""
        rows: dict[str, Row] = {}
        position: Any = [self.path.stat().st_ino, 0]
        for end, line in self._lines(position):
            position = end
            for key in line["removed"]:
                rows.pop(key, None)
            rows.update({row["id"]: row for row in line["written"]})
        return Snapshot(position, [RowsPartition("item", list(rows.values()))])

    def changes(self, after: Any) -> Iterator[Transaction]:
        """The transactions after a position; it is called again when it has returned.

        Raises `ResyncRequired` if they are gone: a new snapshot is taken, and consumers start over.
        """
        for position, line in self._lines(after):
            changes: list[Change] = [Delete("item", {"id": key}) for key in line["removed"]]
            changes += [Insert("item", row) for row in line["written"]]
            yield Transaction(position, changes)

    def _lines(self, after: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
        with self.path.open("rb") as file:
            number, end = after
            status = os.fstat(file.fileno())
            if status.st_ino != number or status.st_size < end:
                raise position_lost("the file was replaced or cut")
            file.seek(end)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # it is being written just now
                end += len(line)
                yield [number, end], json.loads(line)
