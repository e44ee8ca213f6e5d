"""Copies of listed rows in files, so that the partitions of a snapshot give the same rows whenever they are read.

An upstream without a log cannot be read again as it was. Rows are pickled as the author gave them, some hundred at a
time, so that the pipeline converts and refuses values as always. The files are in the adapter's own state folder.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Row
from changesource_sdk.errors import AdapterError

PART_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """A partition: one file of copied rows of a table. `size` in bytes shows a file that was cut off."""

    table: str
    path: str
    size: int

    def rows(self) -> Iterator[Row]:
        """Read the file. Raises `AdapterError` if it is gone or incomplete."""
        if not self.is_whole():
            raise AdapterError(
                "copy-lost", "the copy of the rows is gone", self.path, "nothing to do: the upstream is listed again"
            )
        with open(self.path, "rb") as file:
            while file.tell() < self.size:
                yield from pickle.load(file)

    def is_whole(self) -> bool:
        """Whether the file has all its bytes."""
        path = Path(self.path)
        return path.is_file() and path.stat().st_size == self.size


class RowCopies:
    """Writes the copies of one snapshot: `add` table by table, then read `parts`. Used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The finished files, in order; `_finish` appends.
        self._parts: list[CopiedRows] = []
        # Rows in the file that is being written; written by `add` and `_finish`.
        self._count = 0
        # Table and path of that file, None between two files; written by `add` and `_finish`.
        self._open: tuple[str, Path] | None = None

    def add(self, table: str, rows: Sequence[Row]) -> None:
        """Append rows of a table. Raises `OSError`, for example on a full disk."""
        if self._open is not None and (self._open[0] != table or self._count >= PART_ROWS):
            self._finish()
        if self._open is None:
            self._open = table, self._folder / f"rows-{len(self._parts)}"
        with open(self._open[1], "ab") as file:
            pickle.dump([dict(row) for row in rows], file, pickle.HIGHEST_PROTOCOL)
        self._count += len(rows)

    def parts(self) -> tuple[CopiedRows, ...]:
        """All files."""
        if self._open is not None:
            self._finish()
        return tuple(self._parts)

    def _finish(self) -> None:
        assert self._open is not None
        table, path = self._open
        self._parts.append(CopiedRows(table, str(path), path.stat().st_size))
        self._open, self._count = None, 0


def are_whole(parts: Sequence[CopiedRows]) -> bool:
    """Whether every part can still be read: whether the snapshot can be resumed."""
    return all(part.is_whole() for part in parts)


def remove(parts: Sequence[CopiedRows]) -> None:
    """Delete the files."""
    for part in parts:
        Path(part.path).unlink(missing_ok=True)
