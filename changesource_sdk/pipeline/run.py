"""What one run of a pipeline carries through all its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules
from changesource_sdk.pipeline.encoding.transactions import SPILL_BYTES
from changesource_sdk.policies.bad_values import policy_of


@dataclass(frozen=True, slots=True)
class Run:
    """The log that a runner writes, where it reports, and what ends it.

    `stop` may be set by any thread. `clock` gives epoch seconds. Transactions above `spill_bytes` go to disk.
    `on_bad_value` is what is configured; without it the adapter's own counts (`policies.bad_values`).
    """

    log_store: LogStore
    stage: Stage
    stop: threading.Event
    clock: Callable[[], float] = time.time
    spill_bytes: int = SPILL_BYTES
    on_bad_value: str = ""

    def bad_value_rules(self, adapter: Adapter) -> BadValueRules:
        """What to do with rows that no consumer can hold, with the requests of operators at this moment."""
        skips = tuple(self.log_store.requests.pending_skips())
        return BadValueRules(policy_of(self.on_bad_value, adapter), skips)

    def open_writer(self) -> LogWriter:
        """Take over the log; see `LogStore.open_writer`."""
        return self.log_store.open_writer(lambda: int(self.clock() * 1_000_000))

    def now_ms(self) -> float:
        """The time in epoch milliseconds."""
        return self.clock() * 1000
