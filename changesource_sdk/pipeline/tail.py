"""The tail: the adapter's transactions after the log's head, read in one thread and appended in another.

The reading thread iterates `changes`, drops what the log already has, validates and encodes the rest, and feeds it in
order; the writing side (`append_tail`) appends all that is waiting in one durable commit and only then acknowledges it
to the store. Runners differ in where this happens, not in what happens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from changesource_sdk.adapter import Acknowledging, Adapter, Closing, Transaction
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.log import LogState, LogWriter
from changesource_sdk.changelog.requests import pending_request, take_prune
from changesource_sdk.changelog.sqlite_log import SqliteLogReader
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.feed import FeedClosed, TransactionFeed
from changesource_sdk.pipeline.snapshotting import adapter_call
from changesource_sdk.pipeline.transactions import SPILL_BYTES, TransactionEncoder
from changesource_sdk.positions import is_ahead, is_behind

_log = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.05
LOOK_UP_S = 0.25
JOIN_S = 5.0


def append_tail(
    adapter: Adapter,
    writer: LogWriter,
    layout: StateDirectory,
    stage: Stage,
    stop: threading.Event,
    *,
    progressed: Callable[[], None] = lambda: None,
    spill_bytes: int = SPILL_BYTES,
) -> None:
    """Append what follows the log's head until told to stop or a snapshot is asked for."""
    tail = Tail(adapter, writer.state(), layout, spill_bytes)
    stage.update(state="tailing", watermark=writer.state().head, position=writer.state().position)
    try:
        tail.start()
        while not stop.is_set() and pending_request(layout.root) is None:
            if _append_waiting(adapter, writer, stage, tail):
                progressed()
            elif tail.is_healthy:
                stage.recovered()
            stage.beat()
            if below := take_prune(layout.root):
                writer.prune(below)
    finally:
        tail.end()


def _append_waiting(adapter: Adapter, writer: LogWriter, stage: Stage, tail: Tail) -> bool:
    """One durable commit of all that waits, then the acknowledgement; whether there was anything."""
    batch = tail.feed.take(LOOK_UP_S)
    if not batch:
        return False
    marks = writer.append(batch)
    tail.feed.done(batch)
    stage.recovered()
    last = batch[-1].position
    changes = sum(transaction.changes for transaction in batch)
    stage.update(position=last, watermark=marks[-1], transactions=len(batch), changes=changes)
    if isinstance(adapter, Acknowledging):
        with adapter_call("acknowledge()"):
            adapter.acknowledge(last)
    return True


class Tail:
    """The reading thread: the adapter's transactions after the log's head, deduplicated, encoded, fed in order."""

    def __init__(self, adapter: Adapter, state: LogState, layout: StateDirectory, spill_bytes: int) -> None:
        self.feed = TransactionFeed()
        self._adapter = adapter
        self._position = state.position
        self._layout = layout
        self._known = SqliteLogReader(layout.root)
        self._segments = 0
        self._epoch = state.epoch
        self._encoder = TransactionEncoder(ConsumerSchema.from_json(state.schema), self._new_segment, spill_bytes)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changesource-tail", daemon=True)
        self.is_healthy = False

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Make the thread end; one that is stuck in the store is left behind and can no longer feed."""
        self._ended.set()
        self.feed.close()
        if isinstance(self._adapter, Closing):
            self._adapter.close()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
        if self._thread.is_alive():
            _log.warning("the adapter is still reading; give it a close() that makes changes() return")
        self._known.close()

    def _run(self) -> None:
        try:
            with adapter_call("changes()"):
                while not self._ended.is_set():
                    self._read_available()
                    self.is_healthy = True
                    self._ended.wait(getattr(self._adapter, "poll_interval", POLL_INTERVAL_S))
        except FeedClosed:
            return
        except BaseException as error:
            self.feed.fail(error)

    def _read_available(self) -> None:
        for transaction in self._adapter.changes(self._position):
            if self._ended.is_set():
                return
            if self._is_replay(transaction):
                # Read it anyway: an adapter may produce the changes from the same stream as the transactions.
                for _ in transaction.changes:
                    pass
                continue
            self.feed.put(self._encoder.encode(transaction))
            self._position = transaction.position

    def _is_replay(self, transaction: Transaction) -> bool:
        position = transaction.position
        if is_ahead(position, self._position):
            return False
        return (
            is_behind(position, self._position)
            or position == self._position
            or self.feed.is_pending(position)
            or self._known.knows(position)
        )

    def _new_segment(self) -> Path:
        self._segments += 1
        return self._layout.segments / f"{self._epoch}-{self._segments}.frames"
