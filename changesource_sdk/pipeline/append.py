"""The writing half of a runner: all that waits becomes one durable commit, and only then is acknowledged to the store.

Runners differ in where this happens, not in what happens: in their own process, or in a Spark task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from changesource_sdk.adapter import Acknowledging, Adapter
from changesource_sdk.changelog.log import LogWriter
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.encoding.transactions import SPILL_BYTES
from changesource_sdk.pipeline.snapshot.take import adapter_call
from changesource_sdk.pipeline.tail import Tail
from changesource_sdk.pipeline.upkeep import Upkeep

LOOK_UP_S = 0.25
SETTLED_S = 5.0
"""A source that fails, works for a moment and fails again is failing all the while."""


def append_tail(
    adapter: Adapter,
    writer: LogWriter,
    store: LogStore,
    stage: Stage,
    stop: threading.Event,
    *,
    progressed: Callable[[], None] = lambda: None,
    spill_bytes: int = SPILL_BYTES,
) -> None:
    """Append what follows the log's head until told to stop or a snapshot is asked for."""
    tail = Tail(adapter, writer.state(), store, spill_bytes)
    upkeep = Upkeep(store, writer)
    stage.update(state="tailing", watermark=writer.state().head, position=writer.state().position)
    try:
        tail.start()
        look_at = 0.0
        while not stop.is_set():
            if monotonic() >= look_at:
                if store.requests.pending_snapshot() is not None:
                    return
                upkeep.look()
                look_at = monotonic() + LOOK_UP_S
            if _append_waiting(adapter, writer, stage, tail):
                progressed()
            elif tail.healthy_since is not None and monotonic() - tail.healthy_since >= SETTLED_S:
                stage.recovered()
            tail.patience.look()
            stage.beat()
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
