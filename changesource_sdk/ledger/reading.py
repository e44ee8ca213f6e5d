"""Reads an adapter in a thread of its own, so that confirmations can be sent while the upstream is silent.

`changes()` of an adapter may wait for the upstream without limit. All calls of the adapter are made in that one thread,
also those that produce the changes of a transaction. The changes may be a stream that is read once and never fits in
memory, so they pass through a bounded queue, a few at a time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from changesource_sdk.adapter import Adapter, Change, Position, Table, Transaction
from changesource_sdk.contract import checked_transactions
from changesource_sdk.followed_tables import FollowedTables

CHUNK = 200
WAITING_CHUNKS = 8
POLL_INTERVAL_S = 0.05
CLOSED_POLL_S = 0.1
"""How often the thread checks, while the queue is full, whether the reader was closed."""


class _EndOfChanges:
    """Follows the last changes of a transaction in the queue."""


_Item = Transaction | list[Change] | _EndOfChanges | BaseException


class _Ended(Exception):
    """Raised in the thread when the reader was closed."""


class BackgroundReader:
    """Reads the transactions after a position. `next`, the changes it returns and `close` belong to one other thread.

    The caller must read all changes of a transaction before it calls `next` again.
    """

    def __init__(self, adapter: Adapter, after: Position, tables: Sequence[Table] = ()) -> None:
        self._adapter = adapter
        # The adapter's tables at `_position`, `tables` at first; used in the thread.
        self._followed = FollowedTables(tables)
        # Position of the last transaction that was queued whole; written by the thread.
        self._position = after
        self._items: queue.Queue[_Item] = queue.Queue(WAITING_CHUNKS)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changesource-ledger-reading", daemon=True)
        self._thread.start()

    def next(self, timeout: float) -> Transaction | None:
        """The next transaction, None if none comes within `timeout` seconds. Raises what the adapter raised."""
        try:
            item = self._items.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, BaseException):
            raise item
        assert isinstance(item, Transaction), "the changes of the transaction before were not taken"
        return replace(item, changes=self._changes())

    def close(self) -> None:
        """Ask the thread to end, without waiting; it does when the adapter's `changes` returns or yields."""
        self._ended.set()

    def _changes(self) -> Iterator[Change]:
        while True:
            item = self._items.get()
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, _EndOfChanges):
                return
            assert isinstance(item, list)
            yield from item

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                before = self._position
                self._followed.give_to(self._adapter)
                for transaction in checked_transactions(self._adapter.changes(self._position)):
                    self._queue_transaction(transaction)
                    self._position = transaction.position
                if self._position == before:
                    self._ended.wait(getattr(self._adapter, "poll_interval", POLL_INTERVAL_S))
        except _Ended:
            return
        except BaseException as error:
            try:
                self._put(error)
            except _Ended:
                return

    def _queue_transaction(self, transaction: Transaction) -> None:
        self._put(transaction)
        changes = self._followed.following(transaction.changes)
        while chunk := list(islice(changes, CHUNK)):
            self._put(chunk)
        self._put(_EndOfChanges())

    def _put(self, item: _Item) -> None:
        while not self._ended.is_set():
            try:
                self._items.put(item, timeout=CLOSED_POLL_S)
                return
            except queue.Full:
                continue
        raise _Ended
