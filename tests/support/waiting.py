"""The only place in the tests that polls: wait until something another process does has become true.

Files and databases of other processes send no events, so the wait asks again at a short interval; it returns as
soon as the answer is there, and a time-out says what was awaited and what was seen last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")
INTERVAL_SECONDS = 0.02


def until(
    ask: Callable[[], Answer], what: str, *, seconds: float = 30, alive: Callable[[], None] | None = None
) -> Answer:
    """Ask until the answer is truthy and return it; `alive` may raise to end a wait that has become hopeless."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if alive is not None:
            alive()
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for: {what}; last answer: {answer!r}")
        time.sleep(INTERVAL_SECONDS)
