"""A tail in the driver, for the lanes that need the Spark session to read the source.

The tail is the one that all lanes run; only the process differs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from changesource_sdk.adapter import Adapter
from changesource_sdk.observe.log_socket import LogReceiverAddress
from changesource_sdk.pipeline.append import append_tail
from changesource_sdk.pipeline.run import Run
from changesource_sdk.pipeline.source import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class DriverTail:
    """A source to follow in the driver; `progressed` is called after each commit."""

    run: Run
    session: SparkSession
    source: SourceSpec
    progressed: Callable[[], None]
    logs: LogReceiverAddress | None = None  # where other processes send their log records

    def append(self, make_source: Callable[[str], Adapter], lane: str) -> None:
        """Append what a source gives until the run stops or a snapshot is due; raises what ended it otherwise.

        `make_source` gets the key of the source's positions in the log.
        """
        with closing(self.run.open_appender()) as writer:
            source = make_source(writer.position_key)
            self.run.stage.update(lane=lane)
            append_tail(self.run, source, writer, self.progressed)
