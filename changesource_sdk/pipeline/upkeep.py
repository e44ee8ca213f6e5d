"""What the log's writer does between appends: forget what nobody needs, take over compacted snapshots.

Both come from elsewhere, endpoints and compactors, and only the writer may do them. They are done in small steps, so
that appending never waits long: a log of millions of transactions is forgotten a thousand at a time.
"""

from __future__ import annotations

import logging
from time import monotonic

from changesource_sdk.changelog.log import LogWriter
from changesource_sdk.changelog.store import LogStore
from protocol.watermark import EMPTY
from service_kit.logs import event, logger

_log = logger("runner")

STEP_TRANSACTIONS = 1000
STEP_S = 0.02


class Upkeep:
    """The upkeep of one log by its writer; `look` takes about `STEP_S` at most, and the rest is left for the next."""

    def __init__(self, store: LogStore, writer: LogWriter) -> None:
        self._store = store
        self._writer = writer
        self._forget = EMPTY

    def look(self) -> None:
        """Do a little of what is asked for."""
        if watermark := self._store.offers.take(self._writer):
            event(_log, logging.INFO, "a compacted snapshot is served from now on", watermark=watermark)
        self._forget = max(self._forget, self._store.requests.take_prune() or EMPTY)
        deadline = monotonic() + STEP_S
        while self._writer.prune(self._forget, STEP_TRANSACTIONS) and monotonic() < deadline:
            pass
