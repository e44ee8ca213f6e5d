"""A readable copy of a database in zero-cache's own journal mode, `wal2`, which no other SQLite build opens.

Such a database has two write-ahead logs of the usual format, written in turn; the one with the higher checkpoint number
is the newer. The copy is the database with the committed frames of the older and then of the newer one written into it,
which is what a reader sees. zero-cache may write meanwhile: if one of the logs is restarted during a
copy, the copy is made again.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from changesource_sdk.errors import StateError

WAL2_VERSION = 3
HEADER = struct.Struct(">8I")
FRAME = struct.Struct(">6I")
LITTLE_ENDIAN, BIG_ENDIAN = 0x377F0682, 0x377F0683
ATTEMPTS = 20
_VERSIONS = slice(18, 20)
_LEGACY = b"\x01\x01"


@dataclass(frozen=True, slots=True)
class WriteAheadLog:
    """A write-ahead log as it was read; of two, the one with the higher `number` is newer."""

    number: int
    page_size: int
    data: bytes

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Page number, size of the database in pages after a commit (else 0), and page, as far as checksums hold."""
        magic, _, _, _, salt1, salt2, sum1, sum2 = HEADER.unpack_from(self.data)
        order = "<" if magic == LITTLE_ENDIAN else ">"
        sums = (sum1, sum2)
        size = FRAME.size + self.page_size
        for at in range(HEADER.size, len(self.data) - size + 1, size):
            page, pages, *rest = FRAME.unpack_from(self.data, at)
            body = self.data[at + FRAME.size : at + size]
            sums = checksum(self.data[at : at + 8] + body, order, sums)
            if tuple(rest) != (salt1, salt2, *sums):
                return
            yield page, pages, body


def is_wal2(path: Path) -> bool:
    """Whether a database is in this journal mode."""
    with path.open("rb") as file:
        header = file.read(20)
    return header.startswith(b"SQLite format 3\0") and header[_VERSIONS] == bytes([WAL2_VERSION] * 2)


def readable_copy(path: Path, target: Path) -> None:
    """Copy a database and what is in its logs, at one moment, to where any SQLite can read it."""
    for _ in range(ATTEMPTS):
        logs = _logs(path)
        shutil.copyfile(path, target)
        if [log.number for log in _logs(path)] == [log.number for log in logs]:
            break
    else:
        raise StateError("replica-busy", "the replica changes faster than it can be copied", str(path), "try again")
    with target.open("r+b") as file:
        for log in sorted(logs, key=lambda log: log.number):
            _write_committed(file, log)
        file.seek(_VERSIONS.start)
        file.write(_LEGACY)


def _logs(path: Path) -> list[WriteAheadLog]:
    logs = (_log(path.with_name(path.name + ending)) for ending in ("-wal", "-wal2"))
    return [log for log in logs if log is not None]


def _log(path: Path) -> WriteAheadLog | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < HEADER.size:
        return None
    magic, _, page_size, number, *_, sum1, sum2 = HEADER.unpack_from(data)
    if magic not in (LITTLE_ENDIAN, BIG_ENDIAN):
        return None
    order = "<" if magic == LITTLE_ENDIAN else ">"
    if checksum(data[: HEADER.size - 8], order, (0, 0)) != (sum1, sum2):
        return None
    return WriteAheadLog(number, page_size, data)


def _write_committed(file: BinaryIO, log: WriteAheadLog) -> None:
    pending: list[tuple[int, bytes]] = []
    for page, pages, body in log.frames():
        pending.append((page, body))
        if pages:
            for number, content in pending:
                file.seek((number - 1) * log.page_size)
                file.write(content)
            file.truncate(pages * log.page_size)
            pending.clear()


def checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's running checksum of a write-ahead log, over pairs of 32-bit words."""
    one, two = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
