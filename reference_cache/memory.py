"""How the process uses memory: the allocator's settings, and giving back what clients that left had used."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from contextlib import suppress
from pathlib import Path

COLLECTOR = (50_000, 20, 100)
"""How seldom the cycle collector looks through memory: rows are held by the hundred thousand and form no cycles, and a
look at all of them would keep the event loop for tenths of a second."""

LARGE_BYTES = 128 * 1024
"""Blocks from this size on are given back to the system when they are freed."""

REST_SECONDS = 2.0
"""How long to rest at least between two times that memory is given back."""

_M_MMAP_THRESHOLD = -3


def tune() -> None:
    """Collect cycles seldom, and give large blocks back when they are freed.

    glibc raises the size from which it does so with every large block that is freed: after a flood of large messages,
    memory that nobody uses would stay with the process. A fixed size keeps it from that.
    """
    gc.set_threshold(*COLLECTOR)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


class Reclaimer:
    """Gives memory that clients used back to the system after they left.

    Blocks below `LARGE_BYTES` that a flood left free stay with the process, scattered among those in use; glibc
    releases them only when asked. Asking walks the heap, so it rests a hundred times as long as it took.
    """

    def __init__(self) -> None:
        # Whether a client group ended since memory was last given back. Written by the event loop.
        self._has_freed = False
        # Resident bytes after it was last given back: connections that never became clients show as growth.
        self._kept = resident_bytes()
        # When it may be given back again, on the monotonic clock.
        self._rests_until = 0.0

    def freed(self) -> None:
        """A client group, and what it used, is gone."""
        self._has_freed = True

    def is_due(self) -> bool:
        """Whether it is worth asking now."""
        if time.monotonic() < self._rests_until:
            return False
        return self._has_freed or resident_bytes() > self._kept * 1.05

    def give_back(self) -> None:
        """Have Python and glibc release what is free. May run in a thread."""
        self._has_freed = False
        began = time.monotonic()
        gc.collect(0)  # what a closed connection leaves refers to itself; the youngest alone takes milliseconds
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        ended = time.monotonic()
        self._rests_until = ended + max(REST_SECONDS, 100 * (ended - began))
        self._kept = resident_bytes()


def resident_bytes() -> int:
    """The resident memory of this process; 0 where `/proc` does not tell it."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
