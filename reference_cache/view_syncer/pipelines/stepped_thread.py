"""Runs plain code that takes long in slices, between which the event loop runs.

The code runs in a thread of its own, but never at the same time as the event loop: each `step` of the loop lets the
thread run until it calls `pause`, and waits for that. So the two share state as if they were one thread, and code can
pause anywhere below plain calls, also inside a SQLite statement, where no generator could yield.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SteppedThread(Generic[T]):
    """One run of `work`. `step` and `stop` are called by the event loop's thread, `pause` by the work itself."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        # Set by `stop`; the pause that the work is in raises it.
        self._stop_with: BaseException | None = None
        # The three below are written by the thread when the work ends, before it releases `_back` for the last time.
        self._error: BaseException | None = None
        # One item, unless `_error` is set. A list, because None may be the result.
        self._result: list[T] = []
        # Whether the work has ended.
        self._done = False
        # A daemon, so that the process can exit while it is paused.
        self._thread = threading.Thread(target=self._run, name="stepped", daemon=True)
        self._thread.start()

    @property
    def result(self) -> T:
        """What the work returned; raises what it raised. After `step` returned True."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def step(self) -> bool:
        """Let the work run until it pauses or ends; returns whether it has ended."""
        if not self._done:
            self._go.release()
            self._back.acquire()
        return self._done

    def stop(self, error: BaseException) -> None:
        """End the work: the pause it is in, and any other, raises `error`."""
        self._stop_with = error
        while not self.step():
            pass

    def pause(self) -> None:
        """Let the event loop run."""
        if self._stop_with is None:
            self._back.release()
            self._go.acquire()
        if self._stop_with is not None:
            raise self._stop_with

    def _run(self) -> None:
        self._go.acquire()
        try:
            if self._stop_with is not None:
                raise self._stop_with
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        self._done = True
        self._back.release()
