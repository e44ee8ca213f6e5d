"""The payloads of one transaction, until its commit is known: in memory, and beyond a limit in a file.

A transaction's position stands in its commit, which comes last; so its payloads wait here, still encoded, however many
they are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from struct import Struct
from typing import IO

SPILL_BYTES = 16 * 1024 * 1024
_LENGTH = Struct(">I")


class RawTransaction:
    """Payloads in order. Invariant: at most `spill_bytes` and one payload are in memory."""

    def __init__(self, spill_bytes: int = SPILL_BYTES) -> None:
        self._limit = spill_bytes
        self._held: list[bytes] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def add(self, payload: bytes) -> None:
        """One more payload."""
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
        """All payloads, once; nothing is kept afterwards."""
        if self._file is not None:
            yield from _read(self._file)
        yield from self._held
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._held = []
        if self._file is not None:
            self._file.close()
            self._file = None


def _read(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while header := file.read(_LENGTH.size):
        yield file.read(_LENGTH.unpack(header)[0])
