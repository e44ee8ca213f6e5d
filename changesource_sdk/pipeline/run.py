"""What one run of a pipeline carries through all its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.source_writer import SourceWriter
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
    `on_bad_value` is what is configured; without it the adapter's own counts (`policies.bad_values`). Where several
    sources share the log, `source` is the name of the one that this run is for, "" for the owner of the log, and
    `epoch` is the owner's.
    """

    log_store: LogStore
    stage: Stage
    stop: threading.Event
    clock: Callable[[], float] = time.time
    spill_bytes: int = SPILL_BYTES
    on_bad_value: str = ""
    source: str = ""
    epoch: int = 0

    def bad_value_rules(self, adapter: Adapter) -> BadValueRules:
        """What to do with rows that no consumer can hold, with the requests of operators at this moment."""
        skips = tuple(skip for skip in self.log_store.requests.pending_skips() if skip.source == self.source)
        return BadValueRules(policy_of(self.on_bad_value, adapter), skips)

    def open_writer(self) -> LogWriter:
        """Take over the log; see `LogStore.open_writer`."""
        return self.log_store.open_writer(self._now_us)

    def open_source_writer(self) -> SourceWriter:
        """Take over the source of this run; see `LogStore.open_source_writer`."""
        return self.log_store.open_source_writer(self.source, self.epoch, self._now_us)

    def open_appender(self) -> LogWriter | SourceWriter:
        """Open what appends the transactions of this run."""
        return self.open_source_writer() if self.source else self.open_writer()

    def require_snapshot(self, reason: str) -> None:
        """Note that the upstream must be read again: all of the log, or the source of this run alone."""
        if self.source:
            with closing(self.open_source_writer()) as writer:
                writer.clear_position()
            return
        with closing(self.log_store.open_log()) as log:
            self.log_store.requests.ask_snapshot(log.state().head, reason)

    def _now_us(self) -> int:
        return int(self.clock() * 1_000_000)

    def now_ms(self) -> float:
        """The time in epoch milliseconds."""
        return self.clock() * 1000
