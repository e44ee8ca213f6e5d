"""Partitions into parts: by their rows, or by JSON that a partition writes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Column, Row, RowsPartition, Table
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.pipeline.snapshot.take import PartTask, write_partition

ISSUE = Table("issue", [Column("id", int), Column("title", str)])
ROWS: tuple[Row, ...] = ({"id": 1, "title": "a"}, {"id": 2, "title": None})


@dataclass(frozen=True)
class WritesJson:
    """Vouches for the first row and leaves the second to the check."""

    table: str = "issue"

    def rows(self) -> tuple[Row, ...]:
        return ROWS

    def json_rows(self, checked: Callable[[Row], bytes]) -> Iterator[list[bytes]]:
        yield [b'{"id":1,"title":"a"}']
        yield [checked(ROWS[1])]


def frames(folder: Path, part: str, size: int, checksum: int) -> bytes:
    return b"".join(BlockFile(folder / part, size, checksum).blocks())


def test_json_that_a_partition_writes_makes_the_same_part(tmp_path: Path) -> None:
    told: list[int] = []
    by_rows = write_partition(tmp_path, PartTask(1, ISSUE, RowsPartition("issue", ROWS)))
    by_json = write_partition(tmp_path, PartTask(2, ISSUE, WritesJson()), told.append)
    assert (by_json.rows, told) == (2, [1, 1])
    assert frames(tmp_path, by_json.file, by_json.bytes, by_json.crc32) == frames(
        tmp_path, by_rows.file, by_rows.bytes, by_rows.crc32
    )
