"""Kafka topics behind Zero: a snapshot of the records up to fixed offsets, then every record after them.

`settings` explains the settings. Nothing is written to the brokers except the offsets of a consumer group, for lag
tools. A position has the offsets of all partitions and the tables that consumers have there (`position`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from adapters.kafka.broker.client import require_topics, topic_states
from adapters.kafka.broker.consumer import REFRESH_MS, SILENT_AFTER_S, PartitionConsumer
from adapters.kafka.broker.ends import EndReader
from adapters.kafka.broker.group_offsets import GroupOffsets
from adapters.kafka.checks import examine
from adapters.kafka.keys.before import index_before, require_one_partition_per_key
from adapters.kafka.position import KafkaPosition
from adapters.kafka.resuming import check_resumable, grown_topics
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.snapshot import current_catalog, take_snapshot
from adapters.kafka.tail import KafkaTail, data_starts
from adapters.kafka.transactions.assembly import REMEMBERED, Partition
from changesource_sdk import Check, Position, Snapshot, Table, Transaction, clear_warning, warn
from changesource_sdk.toolkit import Throttle, logger

_log = logger("kafka")
WARN_AGAIN_S = 60.0
SILENT = "brokers-silent"


class KafkaAdapter:
    """Reads topics of one cluster. Picklable: each call opens its own connections."""

    poll_interval = 0.0  # `changes` waits for records itself

    def __init__(self, bootstrap: str | Sequence[str], topics: str | Sequence[str], **settings: Any) -> None:
        """The other settings are those of `KafkaSettings.parse`."""
        self._settings = KafkaSettings.parse(bootstrap, topics, **settings)
        self._initialise_state()

    def _initialise_state(self) -> None:
        # Set by `close`, in any thread; ends `changes`.
        self._closed = threading.Event()
        # What `changes` has read, for `distance`: the last position that was yielded, and the offsets read with
        # nothing to yield after it. Replaced as a whole by the thread of `changes`.
        self._read: tuple[Position, dict[Partition, int]] = None, {}
        # Has a connection, so it is not pickled.
        self._ends = EndReader(self._settings)
        # Commits acknowledged offsets in a thread of its own, so it is not pickled.
        self._group = GroupOffsets(self._settings)

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._initialise_state()

    @property
    def on_bad_value(self) -> str | None:
        """Rows that no consumer can hold are left out where records that cannot be read are; `on-bad-value` counts
        more.
        """
        return "dead-letter" if self._settings.poison == "set-aside" else None

    def tables(self) -> Sequence[Table]:
        """The tables of the topics, by the settings or by their newest records."""
        return current_catalog(self._settings)[0].tables

    def snapshot(self) -> Snapshot:
        """The rows of the topics up to their current ends."""
        return take_snapshot(self._settings)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """Records after a position, as they come, until the adapter is closed. Raises `ResyncRequired`."""
        position = KafkaPosition.from_json(after)
        states = topic_states(self._settings)
        require_topics(self._settings, states)
        known, position = position, check_resumable(self._settings, position, states)
        # A position of an early version: the topics must be read once, for keys that are in several partitions.
        if position.moved is None:
            require_one_partition_per_key(self._settings, position)
            position = replace(position, moved=grown_topics(self._settings, known, position.offsets))
        starts = data_starts(position, self._settings.transaction_topic)
        memory = {}
        if topic := self._settings.transaction_topic:
            starts[topic, 0] = position.offsets[topic][0] if position.ended_from is None else position.ended_from
            memory = {(topic, 0): REMEMBERED}
        make_index = partial(index_before, self._settings)
        with (
            closing(PartitionConsumer(self._settings, position.topic_ids, starts, memory)) as consumer,
            closing(KafkaTail(self._settings, position, time.monotonic(), make_index)) as tail,
        ):
            self._read = after, {}
            yield from self._follow(consumer, tail)

    def _follow(self, consumer: PartitionConsumer, tail: KafkaTail) -> Iterator[Transaction]:
        check_at = 0.0
        silence, is_silent = Throttle(WARN_AGAIN_S), False
        while not self._closed.is_set():
            batch = consumer.poll()
            now = time.monotonic()
            for transaction in tail.take(batch, now):
                self._read = transaction.position, {}
                yield transaction
            if not batch and not self._settings.transaction_topic:
                self._read = self._read[0], consumer.positions()
            if now >= check_at:
                check_at = now + REFRESH_MS / 1000
                tail.follow(consumer.new_partitions())
            tail.alarm(now)
            is_silent = self._warn_of_silence(consumer.silence_s, is_silent, silence)

    def _warn_of_silence(self, seconds: float, was_silent: bool, throttle: Throttle) -> bool:
        """Warn while brokers do not answer, and clear the warning when they do; returns whether they are silent."""
        is_silent = seconds > SILENT_AFTER_S
        if is_silent and throttle.admit("silence") is not None:
            what = "the brokers do not answer; reading continues when they do"
            warn(_log, SILENT, self._settings.where, what, holds="stream", silent_s=round(seconds))
        elif was_silent and not is_silent:
            clear_warning(_log, SILENT, self._settings.where, "the brokers answer again")
        return is_silent

    def examine(self) -> Sequence[Check]:
        """The checks of `changesource doctor`."""
        return list(examine(self._settings))

    def acknowledge(self, position: Position) -> None:
        """Commit the offsets to the consumer group, in the background."""
        self._group.put(position)

    def head(self) -> Position:
        """The offset after the last record of every partition, by topic."""
        position, _ = self._read
        topics = KafkaPosition.from_json(position).offsets if position is not None else topic_states(self._settings)
        ends = self._ends.ends(topics)
        return {topic: list(offsets) for topic, offsets in ends.items()}

    def distance(self, position: Position, head: Position) -> int | None:
        """How many offsets are after a position, without those that were read and had nothing for consumers."""
        reached = KafkaPosition.from_json(position)
        last, read = self._read
        ahead = read if last == position else {}
        ends = head if isinstance(head, dict) else {}
        total = 0
        for topic, numbers in ends.items():
            known = reached.read.get(topic) or reached.offsets.get(topic, ())
            for number, end in enumerate(numbers if isinstance(numbers, list) else ()):
                offset = max(known[number] if number < len(known) else 0, ahead.get((topic, number), 0))
                total += max(0, end - offset) if isinstance(end, int) else 0
        return total

    def close(self) -> None:
        """Make `changes` return."""
        self._closed.set()
        self._group.close()
