"""The newest transactions, read from the log once and shared in memory by every consumer.

One task per process waits for the writer's poke, reads what is new, and wakes the subscriptions. The bytes held are
bounded: old transactions fall out, and a consumer that still needs them goes back to the log. While nobody follows,
only the head moves and nothing is read.

Contract: `after(w)` gives the transactions that follow `w`, without a gap, or None if `w` is below what is held. The
log may also be read in a thread; everything held here is touched by the event loop only.

A log that starts over (new generation, or a new file after a loss) begins above everything it ever named. So a log
whose oldest watermark is above where we stand has started over, and `lineage` tells the subscriptions to decide anew.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from changesource_sdk.changelog.log import EMPTY, LogReader, LogState, Stored
from changesource_sdk.observe.metrics import EndpointMetrics

#: The first look at a log of this host is taken on the loop: the pages are in memory, a reader never waits for the
#: writer, and a hop to a thread and back doubles the latency on a busy machine. Everything else is read in a thread.
NEWS_BYTES = 64 * 1024
READ_BYTES = 4 * 1024 * 1024


class LiveTail:
    """A window on the end of the log. Invariant: it holds every transaction in (floor, head], in order."""

    def __init__(self, reader: LogReader, limit_bytes: int, metrics: EndpointMetrics) -> None:
        self.state = LogState()
        self.lineage = 0  # grows whenever the log starts over: what was sent before no longer has a continuation
        self._reader = reader
        self._limit = limit_bytes
        self._metrics = metrics
        self._floor = EMPTY
        self._held: list[Stored] = []
        self._bytes = 0
        self._followers = 0
        self._news = asyncio.Event()
        # A thread of its own: snapshots being read for others must not delay what is new.
        self._thread = ThreadPoolExecutor(1, "tail")

    @property
    def head(self) -> str:
        return self.state.head

    async def run(self, wait_for_poke: Callable[[], Awaitable[object]]) -> None:
        """Keep up with the log for ever; `wait_for_poke` returns when it may have grown."""
        while True:
            await self.advance()
            await wait_for_poke()

    async def advance(self) -> None:
        """Take in what the log has gained, and wake whoever waits."""
        loop = asyncio.get_running_loop()
        if self._reader.answers_at_once:
            found, state = self._look(NEWS_BYTES)
        else:
            found, state = await loop.run_in_executor(self._thread, self._look, READ_BYTES)
        while self._take_in(found, state):
            found, state = await loop.run_in_executor(self._thread, self._look, READ_BYTES)

    def _look(self, max_bytes: int) -> tuple[list[Stored], LogState]:
        # The state is read last: if it does not show a new lineage, neither did the transactions come from one.
        found = self._reader.read_after(self.state.head, max_bytes) if self._followers else []
        return found, self._reader.state()

    def _take_in(self, found: list[Stored], state: LogState) -> bool:
        """Move on to what was found; whether the log has more."""
        if state.oldest > self.state.head:
            self._restart_at(state)
            self.lineage += 1
        elif not self._followers:
            self._restart_at(state)
        elif found:
            self._take(found, state)
            return found[-1].watermark < state.head
        return False

    def after(self, watermark: str) -> Sequence[Stored] | None:
        """The held transactions that follow `watermark`, or None if some were already let go."""
        if watermark < self._floor:
            return None
        return self._held[bisect_right(self._held, watermark, key=lambda stored: stored.watermark) :]

    async def news(self, within: float) -> None:
        """Wait until the log moves on, or that many seconds pass."""
        try:
            async with asyncio.timeout(within):
                await self._news.wait()
        except TimeoutError:
            pass

    @contextmanager
    def following(self) -> Iterator[None]:
        """While inside, transactions are read ahead for this consumer."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1

    def close(self) -> None:
        """Let go of the thread and the log."""
        self._thread.shutdown()
        self._reader.close()

    def _restart_at(self, state: LogState) -> None:
        moved = state.head != self.state.head
        self.state, self._floor = state, state.head
        self._held, self._bytes = [], 0
        self._metrics.tail_bytes.set(0)
        if moved:
            self.wake()

    def _take(self, found: list[Stored], state: LogState) -> None:
        self._held.extend(found)
        self._bytes += sum(map(_in_memory, found))
        self._let_go()
        self.state = replace(state, head=found[-1].watermark)
        self._metrics.tail_reads.inc(len(found))
        self._metrics.tail_bytes.set(self._bytes)
        self.wake()

    def _let_go(self) -> None:
        gone = 0
        while self._bytes > self._limit and gone < len(self._held):
            self._bytes -= _in_memory(self._held[gone])
            self._floor = self._held[gone].watermark
            gone += 1
        del self._held[:gone]

    def wake(self) -> None:
        """Let everyone who waits for news look again."""
        self._news.set()
        self._news = asyncio.Event()


def _in_memory(stored: Stored) -> int:
    return len(stored.frames) if stored.frames is not None else 256
