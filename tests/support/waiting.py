"""The only place in the tests that polls: wait until something another process does has become true.

Files and databases of other processes send no events, so the wait asks again and again; it returns as soon as the
answer is there, and a time-out says what was awaited and what was seen last. The longer it has waited, the longer it
pauses, by a fiftieth of the time and a twentieth of a second at most: who waits for a process to start should leave it
the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")
LONGEST_WAIT_S = 90.0
"""Long enough for a machine that is busy with other tests; who waits for nothing learns of it late, not wrongly."""
SHORTEST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.05


def until(
    ask: Callable[[], Answer], what: str, *, seconds: float = LONGEST_WAIT_S, alive: Callable[[], None] | None = None
) -> Answer:
    """Ask until the answer is truthy and return it; `alive` may raise to end a wait that has become hopeless."""
    began = time.monotonic()
    while True:
        answer = ask()
        if answer:
            return answer
        if alive is not None:
            alive()
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"waited {seconds:g} s in vain for: {what}; last answer: {answer!r}")
        time.sleep(min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, waited / 50)))
