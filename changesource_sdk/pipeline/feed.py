"""The feed between the thread that reads the store and the one that writes the log.

It is bounded in bytes and in number, so a slow disk slows the reader and not the memory. The writer takes all that
is queued at once: one transaction when idle, many under load, and each taking becomes one durable commit.
"""

from __future__ import annotations

import threading

from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.positions import Position, to_text

CAPACITY_BYTES = 32 * 1024 * 1024
CAPACITY_TRANSACTIONS = 4096


class FeedClosed(Exception):
    """The writer is gone; the reader should end."""


class TransactionFeed:
    """A bounded queue. Invariant: what was put before an error is taken before the error is raised."""

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._capacity = capacity_bytes
        self._changed = threading.Condition()
        self._queue: list[EncodedTransaction] = []
        self._size = 0
        self._pending: set[str] = set()
        self._error: BaseException | None = None
        self._closed = False

    def put(self, transaction: EncodedTransaction) -> None:
        """Add a transaction, waiting for room; `FeedClosed` once the writer is gone."""
        size = len(transaction.data) if isinstance(transaction.data, bytes) else 0
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room())
            if self._closed:
                raise FeedClosed
            self._queue.append(transaction)
            self._size += size
            self._pending.add(to_text(transaction.position))
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._size < self._capacity and len(self._queue) < CAPACITY_TRANSACTIONS

    def take(self, timeout: float) -> list[EncodedTransaction]:
        """All that is queued, waiting for something; empty when the time is over. Raises the reader's error at last."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._error or self._closed, timeout)
            if not self._queue and self._error is not None:
                raise self._error
            taken, self._queue = self._queue, []
            self._size = 0
            self._changed.notify_all()
            return taken

    def done(self, transactions: list[EncodedTransaction]) -> None:
        """These are in the log now."""
        with self._changed:
            self._pending.difference_update(to_text(t.position) for t in transactions)

    def is_pending(self, position: Position) -> bool:
        """Whether a transaction with this position was put and is not yet in the log."""
        with self._changed:
            return to_text(position) in self._pending

    def fail(self, error: BaseException) -> None:
        """The reader ended with an error."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """The writer is gone, or must look up from waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
