"""Pure work on large inputs, in one thread beside the event loop.

The two share the interpreter, so the work is not faster for it, but the event loop has its turn every few milliseconds.
There is one such thread, however many clients send large inputs, so that it competes with nobody but the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_thread = ThreadPoolExecutor(1, thread_name_prefix="background")


async def in_background(work: Callable[[], T]) -> T:
    """The result of work that shares no state with the event loop's thread."""
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
