"""Commits offsets to a consumer group, so that lag tools see how far the log is. Nothing reads them back.

The thread `changesource-kafka-group` commits the newest acknowledged offsets about once a second, so that slow or
silent brokers never delay the pipeline. A failed commit is logged and not retried: the next one includes it.
"""

from __future__ import annotations

import logging
import threading

from kafka import KafkaConsumer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from adapters.kafka.broker.client import connection_options
from adapters.kafka.position import KafkaPosition
from adapters.kafka.settings import KafkaSettings
from changesource_sdk import Position
from changesource_sdk.toolkit import Throttle, event, logger

_log = logger("kafka")

INTERVAL_S = 1.0
COMMIT_MS = 5_000
CLOSE_S = 2.0
WARN_AGAIN_S = 60.0


class GroupOffsets:
    """Commits acknowledged offsets in the background."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        # The position to commit next; `put` writes it, the thread takes it. Guarded by `_changed`.
        self._newest: Position = None
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None  # started by the first `put`
        self._throttle = Throttle(WARN_AGAIN_S)

    def put(self, position: Position) -> None:
        """The log has this position; returns at once."""
        if not self._settings.group or self._closed.is_set():
            return
        with self._changed:
            self._newest = position
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="changesource-kafka-group", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Commit the last position, waiting at most `CLOSE_S`, and end the thread."""
        self._closed.set()
        with self._changed:
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S)

    def _run(self) -> None:
        client: KafkaConsumer | None = None
        try:
            while (position := self._next()) is not None:
                try:
                    client = client or self._connect()
                    client.commit(_offsets(KafkaPosition.from_json(position)), timeout_ms=COMMIT_MS)
                except (KafkaError, OSError) as error:
                    self._warn(error)
                self._closed.wait(INTERVAL_S)
        finally:
            if client is not None:
                client.close()

    def _next(self) -> Position:
        """Wait for a new position; None after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None or self._closed.is_set())
            position, self._newest = self._newest, None
            return position

    def _connect(self) -> KafkaConsumer:
        options = {"group_id": self._settings.group, "enable_auto_commit": False, "allow_auto_create_topics": False}
        return KafkaConsumer(**{**connection_options(self._settings), **options})

    def _warn(self, error: Exception) -> None:
        if self._throttle.admit(type(error).__name__) is not None:
            what = "offsets were not committed to the group; lag tools show old ones, nothing else depends on it"
            event(_log, logging.WARNING, what, group=self._settings.group, error=repr(error))


def _offsets(position: KafkaPosition) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(topic, number): OffsetAndMetadata(offset, "", -1)
        for topic, offsets in position.offsets.items()
        for number, offset in enumerate(offsets)
    }
