"""A tail in the driver: what the lanes that need the session beside the source are given, and how they append.

The tail is the one that all lanes run; only its place differs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.observe.log_socket import LogAddress
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.append import append_tail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class DriverTail:
    """A source by its adapter's path and settings, the log it goes to, and what tells the tail to stop."""

    session: SparkSession
    adapter: str
    settings: Mapping[str, object]
    store: LogStore
    stage: Stage
    stop: threading.Event
    progressed: Callable[[], None]
    logs: LogAddress | None = None  # where processes beside the driver send what they log

    def append(self, make_source: Callable[[], Adapter], lane: str) -> None:
        """Append what a source gives until `stop` is set or a snapshot is due; raises what ended it otherwise."""
        writer = self.store.open_writer(lambda: int(time.time() * 1_000_000))
        try:
            source = make_source()
            self.stage.update(lane=lane)
            append_tail(source, writer, self.store, self.stage, self.stop, progressed=self.progressed)
        finally:
            writer.close()
