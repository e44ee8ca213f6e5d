"""The newest transactions, read from the log once and shared in memory by all consumers.

One task per process waits for the writer's wake-up, reads the new transactions, and wakes the subscriptions. Memory is
bounded: old transactions are dropped, and a consumer that still needs them reads the log. While no consumer follows,
only the head is updated and nothing is read.

Contract: `after(w)` returns the transactions after `w`, without a gap, or None if `w` is below what is held. The log
may be read in a thread; the attributes are used on the event loop only.

A log that resets (new generation, or a new file after a loss) begins above every watermark it ever had. So if the log's
oldest watermark is above our head, it was reset; `lineage` changes, and subscriptions make a new plan.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from changesource_sdk.changelog.log import Log, LogState, StoredTransaction
from changesource_sdk.observe.metrics import EndpointMetrics
from protocol.watermark import EMPTY

#: The first read of a log on this host is done on the loop: its pages are in memory, a reader never waits for the
#: writer, and a hop to a thread and back doubles the latency on a busy machine. Everything else is read in a thread.
FIRST_READ_BYTES = 64 * 1024
READ_BYTES = 4 * 1024 * 1024


class LiveTail:
    """A window on the end of the log. Invariant: it holds every transaction in (floor, head], in order."""

    def __init__(self, reader: Log, limit_bytes: int, metrics: EndpointMetrics, *, reads_on_loop: bool) -> None:
        # The log's state as of the last `advance`; `head` is that of the last transaction held.
        self.state = LogState()
        # Grows whenever the log resets: watermarks sent before have no continuation in it.
        self.lineage = 0
        self._reader = reader
        self._limit = limit_bytes
        self._metrics = metrics
        self._reads_on_loop = reads_on_loop
        # The watermark before the first held transaction.
        self._floor = EMPTY
        # Transactions in (floor, head], in order; `_add` appends, `_drop_old` removes at the front.
        self._held: list[StoredTransaction] = []
        # Their size in memory.
        self._bytes = 0
        # How many subscriptions are inside `following`.
        self._followers = 0
        # Set and replaced by a new one by `wake`, so that one event wakes each waiter once.
        self._changed = asyncio.Event()
        # A thread of its own: reading snapshots for other consumers must not delay new transactions.
        self._thread = ThreadPoolExecutor(1, "tail")

    @property
    def head(self) -> str:
        return self.state.head

    async def run(self, wait_for_wakeup: Callable[[], Awaitable[object]]) -> None:
        """Follow the log until cancelled; `wait_for_wakeup` returns when the log may have grown."""
        while True:
            await self.advance()
            await wait_for_wakeup()

    async def advance(self) -> None:
        """Read the new transactions and wake the waiting subscriptions."""
        loop = asyncio.get_running_loop()
        if self._reads_on_loop:
            transactions, state = self._read(FIRST_READ_BYTES)
        else:
            transactions, state = await loop.run_in_executor(self._thread, self._read, READ_BYTES)
        while self._update(transactions, state):
            transactions, state = await loop.run_in_executor(self._thread, self._read, READ_BYTES)

    def _read(self, max_bytes: int) -> tuple[list[StoredTransaction], LogState]:
        # The state is read last: if it shows no reset, the transactions read before it are from the same lineage.
        transactions = self._reader.read_after(self.state.head, max_bytes) if self._followers else []
        return transactions, self._reader.state()

    def _update(self, transactions: list[StoredTransaction], state: LogState) -> bool:
        """Add what was read; returns whether the log has more."""
        if state.oldest > self.state.head:
            self._restart_at(state)
            self.lineage += 1
        elif not self._followers:
            self._restart_at(state)
        elif transactions:
            self._add(transactions, state)
            return transactions[-1].watermark < state.head
        return False

    def after(self, watermark: str) -> Sequence[StoredTransaction] | None:
        """The held transactions after `watermark`, or None if some of them were dropped."""
        if watermark < self._floor:
            return None
        return self._held[bisect_right(self._held, watermark, key=lambda stored: stored.watermark) :]

    async def news(self, within: float) -> None:
        """Wait until the log changes, or for that many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            pass

    @contextmanager
    def following(self) -> Iterator[None]:
        """Inside this context transactions are read into memory for this consumer."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1

    def close(self) -> None:
        """Stop the thread and close the log."""
        self._thread.shutdown()
        self._reader.close()

    def _restart_at(self, state: LogState) -> None:
        moved = state.head != self.state.head
        self.state, self._floor = state, state.head
        self._held, self._bytes = [], 0
        self._metrics.tail_bytes.set(0)
        if moved:
            self.wake()

    def _add(self, transactions: list[StoredTransaction], state: LogState) -> None:
        self._held.extend(transactions)
        self._bytes += sum(map(_in_memory, transactions))
        self._drop_old()
        self.state = replace(state, head=transactions[-1].watermark)
        self._metrics.tail_reads.inc(len(transactions))
        self._metrics.tail_bytes.set(self._bytes)
        self.wake()

    def _drop_old(self) -> None:
        dropped = 0
        while self._bytes > self._limit and dropped < len(self._held):
            self._bytes -= _in_memory(self._held[dropped])
            self._floor = self._held[dropped].watermark
            dropped += 1
        del self._held[:dropped]

    def wake(self) -> None:
        """Wake everything that waits in `news`."""
        self._changed.set()
        self._changed = asyncio.Event()


def _in_memory(stored: StoredTransaction) -> int:
    return len(stored.frames) if stored.frames is not None else 256
