"""Runs pure work on large inputs in one background thread.

The thread shares the interpreter with the event loop, so the work is not faster, but the loop runs every few
milliseconds meanwhile. There is only one thread, however many clients send large inputs: several would take turns with
the loop and with each other, and delay it more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_thread = ThreadPoolExecutor(1, thread_name_prefix="background")


async def in_background(work: Callable[[], T]) -> T:
    """Run `work` in the background thread and return its result; it must share no state with the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
