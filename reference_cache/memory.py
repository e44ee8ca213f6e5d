"""How the process uses memory, set once when the cache starts."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

COLLECTOR = (50_000, 20, 100)
"""How seldom the cycle collector looks through memory: rows are held by the hundred thousand and form no cycles, and a
look at all of them would keep the event loop for tenths of a second."""

LARGE_BYTES = 128 * 1024
"""Blocks from this size on are given back to the system when they are freed."""

_M_MMAP_THRESHOLD = -3


def tune() -> None:
    """Collect cycles seldom, and give large blocks back when they are freed.

    glibc raises the size from which it does so with every large block that is freed: after a flood of large messages,
    memory that nobody uses would stay with the process. A fixed size keeps it from that.
    """
    gc.set_threshold(*COLLECTOR)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
