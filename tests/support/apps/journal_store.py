"""A store with no room for anything but its own data: a file of lines, each one change of an issue tracker.

Its adapter shows a line only some time after it was written, as a store far away would, so that a confirmation has
every chance to be quicker than its data. A position is a number of lines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from changesource_sdk.adapter import Insert, Position, RowsPartition, Snapshot, Transaction, Update
from changesource_sdk.schema import Column, Table

_ID = Column("id", str)
TABLES = (
    Table("users", [_ID, Column("name", str)]),
    Table(
        "issues",
        [_ID, Column("title", str), Column("open", bool), Column("owner_id", str), Column("modified", int)],
    ),
    Table("comments", [_ID, Column("issue_id", str), Column("author_id", str), Column("body", str)]),
    Table("labels", [_ID, Column("name", str)]),
    Table("issue_labels", [Column("issue_id", str), Column("label_id", str)], key=("issue_id", "label_id")),
)


class Journal:
    """The file, as the application writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def append(self, row: dict[str, Any]) -> int:
        """Add or change an issue; the position of that."""
        with self.path.open("a") as file:
            file.write(json.dumps({"at": time.time(), "row": row}) + "\n")
        return len(self.lines())

    def lines(self) -> list[dict[str, Any]]:
        """All whole lines."""
        return [json.loads(line) for line in self.path.read_text().splitlines(keepends=True) if line.endswith("\n")]


class JournalAdapter:
    """Shows lines that are `lag` seconds old."""

    poll_interval = 0.02

    def __init__(self, path: str, lag: str = "0") -> None:
        self._journal = Journal(Path(path))
        self._lag = float(lag)

    def tables(self) -> Sequence[Table]:
        return TABLES

    def snapshot(self) -> Snapshot:
        issues: dict[str, dict[str, Any]] = {}
        shown = self._shown()
        for row in shown:
            issues[row["id"]] = {**issues.get(row["id"], {}), **row}
        return Snapshot(len(shown), [RowsPartition("issues", list(issues.values()))])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        for number, row in enumerate(self._shown()[after:], start=after + 1):
            yield Transaction(number, [(Insert if len(row) == len(TABLES[1].columns) else Update)("issues", row)])

    def _shown(self) -> list[dict[str, Any]]:
        now = time.time()
        return [line["row"] for line in self._journal.lines() if line["at"] + self._lag <= now]
