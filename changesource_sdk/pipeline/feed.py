"""The feed between the thread that reads the upstream and the one that writes the log.

It is bounded in bytes and in number, so a slow disk slows the reader and not the memory. The writer takes
everything that is queued at once: one transaction when idle, many under load. Each batch becomes one durable commit.
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
    """A bounded queue between one reader and one writer thread. All attributes are guarded by `_changed`.

    Invariant: what was put before an error is taken before the error is raised.
    """

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._capacity = capacity_bytes
        self._changed = threading.Condition()
        # Transactions to append; `put` adds, `take` empties.
        self._queue: list[EncodedTransaction] = []
        # Bytes of frames in `_queue`; those in block files on disk do not count.
        self._size = 0
        # Positions that were put and are not in the log yet; `done` removes them.
        self._pending: set[str] = set()
        # What ended the reader; set by `fail`, raised by `take` once the queue is empty.
        self._error: BaseException | None = None
        # Set by `close`; ends a `put` that waits for room.
        self._closed = False

    def put(self, transaction: EncodedTransaction) -> None:
        """Add a transaction, waiting for room. Called by the reader; raises `FeedClosed` after `close`."""
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
        """Return everything queued, waiting up to `timeout` seconds for something; may be empty. Called by the writer.

        Raises the reader's error when nothing is left before it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._error or self._closed, timeout)
            if not self._queue and self._error is not None:
                raise self._error
            taken, self._queue = self._queue, []
            self._size = 0
            self._changed.notify_all()
            return taken

    def done(self, transactions: list[EncodedTransaction]) -> None:
        """Note that these transactions are in the log. Called by the writer."""
        with self._changed:
            self._pending.difference_update(to_text(t.position) for t in transactions)

    def is_pending(self, position: Position) -> bool:
        """Whether a transaction with this position was put and is not yet in the log."""
        with self._changed:
            return to_text(position) in self._pending

    def fail(self, error: BaseException) -> None:
        """Store the error that ended the reader; `take` raises it."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting: the writer is gone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
