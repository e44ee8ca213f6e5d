"""How far the upstream is ahead of the log, asked in a thread of its own: an upstream that hangs delays nothing.

`behind` counts positions; `behind_s` is for how long the log has lacked something that the upstream is known to have.
It needs no clock of the upstream and is exact to the interval of the polls.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

from changesource_sdk.adapter import Adapter, ReportingHead
from changesource_sdk.adapter_wrapper import distance
from changesource_sdk.positions import Position
from service_kit.logs import Throttle, event, logger

_log = logger("runner")

POLL_S = 2.0
SAY_AGAIN_S = 300.0
MOST_HEADS = 1000
"""Heads that the log has not reached, the oldest; beyond it the newest of them is replaced."""


@dataclass(frozen=True, slots=True)
class HeadReport:
    """The newest answer. `read_ms` (epoch) is when it was given. `behind` is None where it cannot be counted."""

    head: Position
    behind: int | None
    behind_s: float
    read_ms: float
    error: str = ""


class HeadWatch:
    """Polls the head of one adapter until `close`. `report` may be called from any thread."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        clock: Callable[[], float] = time.time,
        poll_s: float = POLL_S,
    ) -> None:
        self._adapter = adapter
        self._clock = clock
        self._poll_s = poll_s
        self._ended = threading.Event()
        self._throttle = Throttle(SAY_AGAIN_S)
        self._lock = threading.Lock()  # guards the next three
        # The newest head and when it was read; None before the first answer. Written by the thread.
        self._newest: tuple[Position, float] | None = None
        # Heads that the log has not reached when it was last compared, with the time of each; `report` removes.
        self._ahead: deque[tuple[Position, float]] = deque()
        # What the last call raised, "" if it answered. Written by the thread.
        self._error = ""
        self._thread: threading.Thread | None = None
        if isinstance(adapter, ReportingHead):
            # A daemon: one that is stuck in the upstream must not keep the process.
            self._thread = threading.Thread(target=self._run, name="changesource-head", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread after the call it is in; does not wait for it."""
        self._ended.set()

    def report(self, position: Position) -> dict[str, object] | None:
        """The distance of a log at this position, as plain values; None if the adapter gave no head yet."""
        with self._lock:
            if self._newest is None:
                return None
            head, read_at = self._newest
            while self._ahead and self._has_reached(position, self._ahead[0][0]):
                self._ahead.popleft()
            behind = 0 if not self._ahead else self._distance(position, head)
            behind_s = max(0.0, self._clock() - self._ahead[0][1]) if self._ahead else 0.0
            return asdict(HeadReport(head, behind, behind_s, read_at * 1000, self._error))

    def _run(self) -> None:
        while not self._ended.is_set():
            self._poll()
            self._ended.wait(self._poll_s)

    def _poll(self) -> None:
        assert isinstance(self._adapter, ReportingHead)
        asked_at = self._clock()
        try:
            head = self._adapter.head()
        except Exception as error:
            with self._lock:
                self._error = f"{type(error).__name__}: {error}"[:500]
            if self._throttle.admit("head") is not None:
                event(_log, logging.WARNING, "the upstream does not say how far it is", error=error)
            return
        with self._lock:
            self._error = ""
            if self._newest is None or self._newest[0] != head:
                if len(self._ahead) >= MOST_HEADS:
                    self._ahead.pop()
                self._ahead.append((head, asked_at))
            self._newest = head, self._clock()

    def _has_reached(self, position: Position, head: Position) -> bool:
        distance = self._distance(position, head)
        return position == head if distance is None else distance <= 0

    def _distance(self, position: Position, head: Position) -> int | None:
        try:
            return distance(self._adapter, position, head)
        except Exception:
            # An adapter that cannot compare two positions does not know the distance.
            return None
