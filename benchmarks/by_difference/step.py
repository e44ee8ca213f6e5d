"""One step of the benchmark in a process of its own: `python -m benchmarks.by_difference.step STEP ROWS FOLDER`."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from changesource_sdk import ByDifference, Column, Position, Row, Table

POSITION = "position.json"


class MadeRows(ByDifference):
    """Rows that are made as they are listed. With `changed`, 1 % differ: of 1000, 8 updated, 1 new, 1 gone."""

    def __init__(self, rows: int, changed: bool, state: str) -> None:
        super().__init__(state)
        self.count, self.changed = rows, changed

    def tables(self) -> Sequence[Table]:
        columns = [Column("id", int), Column("title", str), Column("owner", str), Column("stars", int)]
        return [Table("item", [*columns, Column("rate", float), Column("is_open", bool)])]

    def rows(self, table: str) -> Iterator[Row]:
        for id in range(self.count):
            kind = id % 1000 if self.changed else -1
            if kind == 9:
                continue
            yield _row(id, id + 1 if 0 <= kind < 8 else id)
            if kind == 8:
                yield _row(self.count + id, id)


def _row(id: int, number: int) -> Row:
    return {
        "id": id,
        "title": f"The title of item number {number}",
        "owner": f"user-{number % 1000}",
        "stars": number % 6,
        "rate": number / 7,
        "is_open": number % 2 == 0,
    }


def peak_mb() -> float:
    """The most memory this process ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmHWM"))


def measure(step: str, rows: int, folder: Path) -> dict[str, object]:
    """Run a step; `snapshot` leaves its position for the polls."""
    adapter = MadeRows(rows, step == "changed", str(folder / "state"))
    began, cpu_began = time.perf_counter(), time.process_time()
    counted: Counter[str] = Counter()
    match step:
        case "listing":
            counted["rows"] = sum(1 for _ in adapter.rows("item"))
        case "snapshot":
            snapshot = adapter.snapshot()
            (folder / POSITION).write_text(json.dumps(snapshot.position))
            counted["partitions"] = len(snapshot.partitions)
        case _:
            after: Position = json.loads((folder / POSITION).read_text())
            for transaction in adapter.changes(after):
                counted.update(type(change).__name__.lower() + "s" for change in transaction.changes)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    figures = {"seconds": round(seconds, 2), "cpuSeconds": round(cpu, 2), "rowsPerSecond": round(rows / seconds)}
    return {**figures, "peakMB": peak_mb(), **counted}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
