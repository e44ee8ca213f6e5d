"""Ending a child process: first by asking, then by force."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress


def send(signal: Callable[[], None]) -> None:
    """Send a signal (`child.terminate`, `child.kill`) to a child, unless it has just ended by itself."""
    with suppress(ProcessLookupError):
        signal()


async def end(child: Process, grace: float, on_kill: Callable[[], None] = lambda: None) -> int:
    """Terminate a child, kill it if it runs on after `grace` seconds, and return its exit code.

    `on_kill` is called before it is killed. A child that has ended already is fine.
    """
    send(child.terminate)
    try:
        return await asyncio.wait_for(child.wait(), grace)
    except TimeoutError:
        on_kill()
        send(child.kill)
        return await child.wait()
