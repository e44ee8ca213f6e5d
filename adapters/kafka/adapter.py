"""Kafka topics behind Zero: a snapshot of what they say up to fixed offsets, then every record after them.

`settings` describes what a user sets. Nothing is written to the brokers but the offsets of a consumer group, for lag
tools. A position is an offset vector with the tables as consumers have them there (`position`).
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
from adapters.kafka.broker.consumer import REFRESH_MS, SILENT_AFTER_S, Consumer
from adapters.kafka.broker.group_offsets import GroupOffsets
from adapters.kafka.checks import examine
from adapters.kafka.keys.before import index_before, require_one_partition_per_key
from adapters.kafka.position import Vector
from adapters.kafka.resuming import check_resumable, grown_topics
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.snapshot import current_catalog, take_snapshot
from adapters.kafka.tail import Tail, data_starts
from adapters.kafka.transactions.assembly import REMEMBERED
from changesource_sdk import Check, Position, Snapshot, Table, Transaction, clear_warning, warn
from changesource_sdk.toolkit import Throttle, logger

_log = logger("kafka")
TELL_AGAIN_S = 60.0
SILENT = "brokers-silent"


class KafkaAdapter:
    """Reads topics of one cluster. Picklable: connections belong to the calls that need them."""

    poll_interval = 0.0

    def __init__(self, bootstrap: str | Sequence[str], topics: str | Sequence[str], **settings: Any) -> None:
        """The other settings are those of `KafkaSettings.parse`."""
        self._settings = KafkaSettings.parse(bootstrap, topics, **settings)
        self._reset()

    def _reset(self) -> None:
        self._closed = threading.Event()
        self._group = GroupOffsets(self._settings)

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def tables(self) -> Sequence[Table]:
        """The tables that the topics hold, as far as the user or their newest records tell."""
        return current_catalog(self._settings)[0].tables

    def snapshot(self) -> Snapshot:
        """What the topics say up to their ends now."""
        return take_snapshot(self._settings)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """What came after a position, as it comes, until the adapter is closed."""
        vector = Vector.at(after)
        states = topic_states(self._settings)
        require_topics(self._settings, states)
        known, vector = vector, check_resumable(self._settings, vector, states)
        if vector.moved is None:
            require_one_partition_per_key(self._settings, vector)
            vector = replace(vector, moved=grown_topics(self._settings, known, vector.offsets))
        starts = data_starts(vector, self._settings.transaction_topic)
        memory = {}
        if topic := self._settings.transaction_topic:
            starts[topic, 0] = vector.offsets[topic][0] if vector.ended_from is None else vector.ended_from
            memory = {(topic, 0): REMEMBERED}
        make_index = partial(index_before, self._settings)
        with (
            closing(Consumer(self._settings, vector.topic_ids, starts, memory)) as consumer,
            closing(Tail(self._settings, vector, time.monotonic(), make_index)) as tail,
        ):
            yield from self._follow(consumer, tail)

    def _follow(self, consumer: Consumer, tail: Tail) -> Iterator[Transaction]:
        look_at = 0.0
        silence, is_silent = Throttle(TELL_AGAIN_S), False
        while not self._closed.is_set():
            batch = consumer.poll()
            now = time.monotonic()
            yield from tail.take(batch, now)
            if now >= look_at:
                look_at = now + REFRESH_MS / 1000
                tail.follow(consumer.new_partitions())
            tail.alarm(now)
            is_silent = self._warn_of_silence(consumer.silence_s, is_silent, silence)

    def _warn_of_silence(self, seconds: float, was_silent: bool, throttle: Throttle) -> bool:
        """Warn while brokers do not answer, and say when they do again; whether they are silent now."""
        is_silent = seconds > SILENT_AFTER_S
        if is_silent and throttle.admit("silence") is not None:
            what = "the brokers do not answer; reading goes on when they do"
            warn(_log, SILENT, self._settings.where, what, holds="stream", silent_s=round(seconds))
        elif was_silent and not is_silent:
            clear_warning(_log, SILENT, self._settings.where, "the brokers answer again")
        return is_silent

    def examine(self) -> Sequence[Check]:
        """What the brokers allow and lack."""
        return list(examine(self._settings))

    def acknowledge(self, position: Position) -> None:
        """Tell the consumer group, soon."""
        self._group.put(position)

    def close(self) -> None:
        """Make `changes` return."""
        self._closed.set()
        self._group.close()
