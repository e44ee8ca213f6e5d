"""The payloads of one transaction until its commit arrives: in memory, and beyond a limit in a file.

The position of a transaction is in its commit, which is its last message. Until then the payloads are kept here, still
encoded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from struct import Struct
from typing import IO

SPILL_BYTES = 16 * 1024 * 1024
_LENGTH = Struct(">I")


class RawTransaction:
    """Payloads in order, used by one thread. Invariant: at most `spill_bytes` and one payload are in memory."""

    def __init__(self, spill_bytes: int = SPILL_BYTES) -> None:
        self._limit = spill_bytes
        self._held: list[bytes] = []  # payloads in memory, after those in `_file`
        self._size = 0  # bytes in `_held`
        self._file: IO[bytes] | None = None  # earlier payloads with their lengths; opened by the first spill

    def add(self, payload: bytes) -> None:
        self._held.append(payload)
        self._size += len(payload)
        if self._size > self._limit:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="changesource-pg-")  # noqa: SIM115
        for payload in self._held:
            self._file.write(_LENGTH.pack(len(payload)))
            self._file.write(payload)
        self._held.clear()
        self._size = 0

    def payloads(self) -> Iterator[bytes]:
        """All payloads, once: closes itself at the end."""
        if self._file is not None:
            yield from _read(self._file)
        yield from self._held
        self.close()

    def close(self) -> None:
        self._held = []
        if self._file is not None:
            self._file.close()
            self._file = None


def _read(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while header := file.read(_LENGTH.size):
        yield file.read(_LENGTH.unpack(header)[0])
