"""What the log's writer does between appends: prune what no consumer needs, register compacted snapshots.

Endpoints and compactors request it, and only the writer may do it. It is done in small steps, so
that appending never waits long: a log of millions of transactions is pruned a thousand at a time.
"""

from __future__ import annotations

import logging
from time import monotonic

from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.writer import LogWriter
from protocol.watermark import EMPTY
from service_kit.logs import event, logger

_log = logger("runner")

STEP_TRANSACTIONS = 1000
STEP_S = 0.02


class LogUpkeep:
    """The upkeep of one log by its writer, in steps of about `STEP_S` seconds at most."""

    def __init__(self, log_store: LogStore, writer: LogWriter) -> None:
        self._log_store = log_store
        self._writer = writer
        # The highest watermark that was requested to prune to; written by `step`.
        self._forget = EMPTY

    def step(self) -> None:
        """Register an offered snapshot, and prune for about `STEP_S` seconds at most."""
        if watermark := self._log_store.handoff.take(self._writer):
            event(_log, logging.INFO, "a compacted snapshot is served from now on", watermark=watermark)
        self._forget = max(self._forget, self._log_store.requests.take_prune() or EMPTY)
        deadline = monotonic() + STEP_S
        while self._writer.prune(self._forget, STEP_TRANSACTIONS) and monotonic() < deadline:
            pass
