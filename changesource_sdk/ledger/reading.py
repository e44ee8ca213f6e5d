"""Reading an adapter in a thread of its own, so that something else can be told while the store is silent.

`changes()` of an adapter may wait for the store as long as it likes. Everything of the adapter's runs in the one
thread, also the changes of its transactions, which may be a stream that is read once and never held whole: they pass
through a short queue a few at a time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from changesource_sdk.adapter import Adapter, Change, Position, Transaction
from changesource_sdk.contract import checked_transactions

CHUNK = 200
WAITING_CHUNKS = 8
POLL_INTERVAL_S = 0.05
LOOK_UP_S = 0.1


class _Given:
    """The end of a transaction's changes."""


_Item = Transaction | list[Change] | _Given | BaseException


class _Ended(Exception):
    """Nobody wants any more."""


class Reading:
    """The transactions after a position. Invariant: all changes of one are taken before the next is asked for."""

    def __init__(self, adapter: Adapter, after: Position) -> None:
        self._adapter = adapter
        self._position = after
        self._items: queue.Queue[_Item] = queue.Queue(WAITING_CHUNKS)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changesource-ledger-reading", daemon=True)
        self._thread.start()

    def next(self, timeout: float) -> Transaction | None:
        """The next transaction, None if there is none in time. Raises what the adapter raised."""
        try:
            item = self._items.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, BaseException):
            raise item
        assert isinstance(item, Transaction), "the changes of the transaction before were not taken"
        return replace(item, changes=self._changes())

    def close(self) -> None:
        """Let the thread end; it does when the adapter's `changes` returns or gives something."""
        self._ended.set()

    def _changes(self) -> Iterator[Change]:
        while True:
            item = self._items.get()
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, _Given):
                return
            assert isinstance(item, list)
            yield from item

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                before = self._position
                for transaction in checked_transactions(self._adapter.changes(self._position)):
                    self._pass_on(transaction)
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

    def _pass_on(self, transaction: Transaction) -> None:
        self._put(transaction)
        changes = iter(transaction.changes)
        while chunk := list(islice(changes, CHUNK)):
            self._put(chunk)
        self._put(_Given())

    def _put(self, item: _Item) -> None:
        while not self._ended.is_set():
            try:
                self._items.put(item, timeout=LOOK_UP_S)
                return
            except queue.Full:
                continue
        raise _Ended
