"""What one run of a pipeline carries through all its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.encoding.transactions import SPILL_BYTES


@dataclass(frozen=True, slots=True)
class Run:
    """The log that a runner writes, where it reports, and what ends it.

    `stop` may be set by any thread. `clock` gives epoch seconds. Transactions above `spill_bytes` go to disk.
    """

    log_store: LogStore
    stage: Stage
    stop: threading.Event
    clock: Callable[[], float] = time.time
    spill_bytes: int = SPILL_BYTES

    def open_writer(self) -> LogWriter:
        """Take over the log; see `LogStore.open_writer`."""
        return self.log_store.open_writer(lambda: int(self.clock() * 1_000_000))

    def now_ms(self) -> float:
        """The time in epoch milliseconds."""
        return self.clock() * 1000
