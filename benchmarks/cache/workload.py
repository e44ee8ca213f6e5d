"""The store behind both caches: issues in buckets of a hundred, then single inserts spread over some of the buckets.

Served by `changesource serve benchmarks.cache.workload:Buckets`. A query asks for one bucket, so it begins with a
hundred rows and gains one with every transaction on its bucket: each change must reach each client, and neither cache
can merge two of them into one. Every inserted row says when it was committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.endpoint.workload import GATE_POLL_SECONDS, PARTITION_ROWS, Gate
from changesource_sdk.adapter import Column, Insert, Position, Row, Snapshot, Table, Transaction

BUCKET_ROWS = 100
ISSUE = Table(
    "issue",
    [
        Column("id", "int8"),
        Column("bucket", "int8"),
        Column("title", "text"),
        Column("body", "text"),
        Column("open", "bool"),
        Column("score", "float8"),
        Column("labels", "json"),
        Column("created", "float8"),
    ],
)
CLIENT_SCHEMA = {
    "tables": {
        "issue": {
            "columns": {
                "body": {"type": "string"},
                "bucket": {"type": "number"},
                "created": {"type": "number"},
                "id": {"type": "number"},
                "labels": {"type": "json"},
                "open": {"type": "boolean"},
                "score": {"type": "number"},
                "title": {"type": "string"},
            },
            "primaryKey": ["id"],
        }
    }
}


def row(number: int, bucket: int, created: float) -> Row:
    """About 300 bytes as a protocol message."""
    return {
        "id": number,
        "bucket": bucket,
        "title": f"Issue number {number}",
        "body": "Lorem ipsum dolor sit amet, consectetur adipiscing.",
        "open": number % 2 == 0,
        "score": number / 7,
        "labels": ["bug", "p1"],
        "created": created,
    }


def bucket_query(bucket: int) -> dict[str, Any]:
    """The query for the rows of one bucket, as a client sends it."""
    condition = {
        "type": "simple",
        "op": "=",
        "left": {"type": "column", "name": "bucket"},
        "right": {"type": "literal", "value": bucket},
    }
    return {"table": "issue", "where": condition, "orderBy": [["id", "asc"]]}


@dataclass(frozen=True, slots=True)
class Issues:
    """A range of the snapshot."""

    first: int
    end: int
    table: str = "issue"

    def rows(self) -> Iterator[Row]:
        return (row(number, number // BUCKET_ROWS, 0.0) for number in range(self.first, self.end))


class Buckets:
    """The adapter. Positions are transaction numbers; number n inserts `size` rows into bucket n modulo `spread`."""

    poll_interval = GATE_POLL_SECONDS

    def __init__(self, rows: str = "1000", gate: str = "", spread: str = "1", size: str = "1") -> None:
        self._rows = int(rows)
        self._gate = Gate(Path(gate))
        self._spread = int(spread)
        self._size = int(size)

    def tables(self) -> list[Table]:
        return [ISSUE]

    def snapshot(self) -> Snapshot:
        starts = range(0, self._rows, PARTITION_ROWS)
        return Snapshot(0, [Issues(start, min(start + PARTITION_ROWS, self._rows)) for start in starts])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        for number in range(after + 1, self._gate.released() + 1):
            now = time.time() * 1000
            first = self._rows + number * self._size
            rows = [row(key, number % self._spread, now) for key in range(first, first + self._size)]
            yield Transaction(number, [Insert("issue", each) for each in rows], commit_time_ms=now)
