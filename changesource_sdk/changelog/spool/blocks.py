"""Block files: many frames on disk, read back in blocks that can be sent without change.

Spool parts and the segments of large transactions are such files: a sequence of blocks, each `u32 length | frames`. A
block has whole frames only and about `BLOCK_SIZE` bytes, unless a single frame is larger, so a reader needs one block
in memory at a time. The CRC-32 of the file is in the manifest or the log's row; reading compares it at the end.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.errors import SnapshotGone
from service_kit.private_files import opener

BLOCK_SIZE = 256 * 1024
_LENGTH = 4


@dataclass(frozen=True, slots=True)
class BlockFile:
    """A finished block file: `size` is the bytes of its frames, `crc32` the checksum of the whole file."""

    path: Path
    size: int
    crc32: int

    def blocks(self) -> Iterator[bytes]:
        """Yield the frames, one block at a time; raises `SnapshotGone` for a missing, truncated or altered file.

        Damage may be noticed only after the last block, so a caller must not commit before this ends.
        """
        checksum = 0
        try:
            with self.path.open("rb", buffering=0) as file:
                while header := file.read(_LENGTH):
                    block = _read_whole(file.fileno(), int.from_bytes(header, "big"))
                    checksum = zlib.crc32(block, zlib.crc32(header, checksum))
                    yield block
        except OSError as error:
            raise self._gone(str(error)) from error
        if checksum != self.crc32:
            raise self._gone("its checksum differs from the recorded one")

    def _gone(self, reason: str) -> SnapshotGone:
        return SnapshotGone(
            "frames-unreadable",
            f"stored frames cannot be read back: {reason}",
            where=str(self.path),
            fix="connect again; if it persists, remove log.sqlite so that a new snapshot is taken",
        )


def _read_whole(descriptor: int, length: int) -> bytes:
    block = os.read(descriptor, length)
    while len(block) < length:
        more = os.read(descriptor, length - len(block))
        if not more:
            break
        block += more
    return block


class BlockWriter:
    """Writes one block file. One call's frames are never split; `finish` makes the file durable. For one thread."""

    def __init__(self, path: Path, block_size: int = BLOCK_SIZE) -> None:
        self._path = path
        self._block_size = block_size
        with disk_errors(path):
            self._file = open(path, "wb", buffering=0, opener=opener)  # noqa: SIM115 - `finish` closes it
        # Frames that wait for a full block, and their size in bytes; `write` adds, `_flush_block` empties.
        self._pending: list[bytes] = []
        # See `_pending`.
        self._pending_size = 0
        # Bytes of frames in the file, without block headers; written by `_flush_block`.
        self.size = 0
        # Of everything in the file, headers included; written by `_flush_block`.
        self._crc32 = 0

    def write(self, frames: bytes) -> None:
        """Add whole frames."""
        self._pending.append(frames)
        self._pending_size += len(frames)
        if self._pending_size >= self._block_size:
            self._flush_block()

    def _flush_block(self) -> None:
        block = b"".join(self._pending)
        header = len(block).to_bytes(_LENGTH, "big")
        self._crc32 = zlib.crc32(block, zlib.crc32(header, self._crc32))
        with disk_errors(self._path):
            for piece in (header, block):
                self._write_whole(piece)
        self.size += len(block)
        self._pending.clear()
        self._pending_size = 0

    def _write_whole(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            view = view[self._file.write(view) or 0 :]

    def finish(self) -> BlockFile:
        """Write the last block, sync and close the file, and return its description."""
        if self._pending:
            self._flush_block()
        with disk_errors(self._path):
            os.fsync(self._file.fileno())
            self._file.close()
        return BlockFile(self._path, self.size, self._crc32)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abandon()
