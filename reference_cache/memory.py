"""Memory of the process: settings of collector and allocator, and returning freed memory to the system."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from contextlib import suppress
from pathlib import Path

COLLECTOR = (50_000, 20, 100)
"""Thresholds of the cycle collector. Rows are held by the hundred thousand and form no cycles; a full collection over
them would block the event loop for tenths of a second, so it must be rare."""

LARGE_BYTES = 128 * 1024
"""Freed blocks from this size on return to the system immediately (glibc allocates them with mmap)."""

REST_SECONDS = 2.0
"""The shortest time between two trims."""

_M_MMAP_THRESHOLD = -3


def tune() -> None:
    """Make full collections rare, and return large blocks to the system when they are freed.

    glibc raises its mmap threshold with every large block that is freed. After a flood of large messages, unused memory
    would then stay with the process. Setting the threshold also stops glibc from raising it.
    """
    gc.set_threshold(*COLLECTOR)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


class Reclaimer:
    """Returns memory to the system after clients have left.

    Freed blocks below `LARGE_BYTES` stay with the process, scattered among used ones; glibc releases them only in
    `malloc_trim`. That walks the heap, so the next one waits a hundred times as long as the last one took.
    """

    def __init__(self) -> None:
        # Whether a client group ended since the last trim. Set on the event loop, cleared by `give_back`.
        self._has_freed = False
        # Resident bytes after the last trim; growth shows connections that never became clients. By `give_back`.
        self._resident_bytes = resident_bytes()
        # When the next trim may start, on the monotonic clock. Written by `give_back`.
        self._rests_until = 0.0

    def freed(self) -> None:
        """Note that a client group has ended."""
        self._has_freed = True

    def is_due(self) -> bool:
        """Whether a trim is allowed and likely to release something."""
        if time.monotonic() < self._rests_until:
            return False
        return self._has_freed or resident_bytes() > self._resident_bytes * 1.05

    def give_back(self) -> None:
        """Collect young cycles and trim the heap. May run in any thread, one call at a time."""
        self._has_freed = False
        began = time.monotonic()
        gc.collect(0)  # a closed connection leaves reference cycles; the youngest generation takes milliseconds only
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        ended = time.monotonic()
        self._rests_until = ended + max(REST_SECONDS, 100 * (ended - began))
        self._resident_bytes = resident_bytes()


def resident_bytes() -> int:
    """The resident memory of this process; 0 on systems without `/proc`."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
