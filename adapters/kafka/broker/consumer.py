"""Reads many partitions from a position on, without end: a thin shell around kafka-python's consumer.

Partitions are assigned and never negotiated, so there is no rebalancing: other members of a group take nothing from
this one. `poll` returns records as soon as there are any. Brokers that disappear are retried until they return. A
position that cannot be continued raises `ResyncRequired`: the topic was replaced by another of the same name, records
were removed before they were read, or records that were read no longer exist.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TypeAlias

from kafka import KafkaConsumer
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import LogTruncationError, OffsetOutOfRangeError
from kafka.structs import TopicPartition

from adapters.kafka.broker.client import NO_TOPIC, make_consumer, naming_the_cause, topic_states
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.transactions.assembly import Partition
from changesource_sdk import ResyncRequired

Batch: TypeAlias = dict[Partition, list[ConsumerRecord]]

POLL_MS = 200
"""How long a poll without records takes, and by that, closing; records end it at once."""
BATCH_RECORDS = 5_000
REFRESH_MS = 5_000
SILENT_AFTER_S = 12.0
"""More than two questions without an answer."""
GONE_AFTER_S = 5.0
"""A broker that has just started may not know its topics yet."""
READ_ANEW = "nothing to do: the topics are read anew and consumers are reset"


class Consumer:
    """Follows partitions from given offsets. Invariant: each record comes once, in its partition's order."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic_ids: Mapping[str, str],
        starts: Mapping[Partition, int],
        before: Mapping[Partition, int] | None = None,
    ) -> None:
        """`before`: so many records from before its start are read again, where they are still there."""
        self._settings = settings
        self._before = before or {}
        self._topic_ids = topic_ids
        self._missing_since: dict[str, float] = {}
        self._places = {TopicPartition(*partition): partition for partition in starts}
        options = {"max_poll_records": BATCH_RECORDS, "metadata_max_age_ms": REFRESH_MS}
        self._client: KafkaConsumer = make_consumer(settings, **options)
        # The client has no public way to tell topic ids or its brokers' silence; what it knows is what it works with.
        self._cluster = self._client._cluster
        self._cluster.add_listener(self._heard)
        self._heard_at = time.monotonic()
        try:
            self._begin({TopicPartition(*partition): offset for partition, offset in starts.items()})
        except BaseException:
            self._client.close()
            raise

    def poll(self) -> Batch:
        """Records that have come; nothing after a while without any."""
        with naming_the_cause(self._settings):
            try:
                found = self._client.poll(timeout_ms=POLL_MS)
            except OffsetOutOfRangeError as error:
                raise self._out_of_range(error) from error
            except LogTruncationError as error:
                raise self._truncated(error) from error
        # Before anything is taken: what was fetched may be of a topic that replaced the one that was followed.
        self._same_topics()
        return {self._places[place]: records for place, records in found.items()}

    @property
    def silence_s(self) -> float:
        """Seconds since the brokers answered; they are asked every few seconds."""
        return time.monotonic() - self._heard_at

    def new_partitions(self) -> list[Partition]:
        """Partitions that the followed topics have got; they are followed from their first record on."""
        new = [
            TopicPartition(topic, number)
            for topic in self._topic_ids
            for number in sorted(self._client.partitions_for_topic(topic) if topic not in self._missing_since else ())
            if TopicPartition(topic, number) not in self._places
        ]
        if new:
            positions = {place: self._client.position(place) for place in self._places}
            self._places |= {place: (place.topic, place.partition) for place in new}
            self._client.assign(list(self._places))
            for place, offset in {**positions, **dict.fromkeys(new, 0)}.items():
                self._client.seek(place, offset)
        return [(place.topic, place.partition) for place in new]

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _begin(self, starts: Mapping[TopicPartition, int]) -> None:
        self._client.assign(list(starts))
        with naming_the_cause(self._settings):
            first = self._client.beginning_offsets(list(starts))
            end = self._client.end_offsets(list(starts))
        for place, offset in starts.items():
            check_range(place.topic, place.partition, offset, first[place], end[place])
            again = self._before.get(self._places[place], 0)
            self._client.seek(place, max(first[place], offset - again))

    def _same_topics(self) -> None:
        """Raise when a followed topic is gone or another one."""
        for topic, known in self._topic_ids.items():
            found = self._cluster.topic_id(topic)
            if found is not None and str(found) not in (known, NO_TOPIC):
                raise topic_replaced(topic)
            if found is not None and str(found) == known:
                self._missing_since.pop(topic, None)
            elif time.monotonic() - self._missing_since.setdefault(topic, time.monotonic()) > GONE_AFTER_S:
                raise topic_gone(topic)

    def _heard(self, _: object) -> None:
        self._heard_at = time.monotonic()

    def _truncated(self, error: LogTruncationError) -> Exception:
        """Why records are no longer there: the topic is another one, or the brokers lost them."""
        states = topic_states(self._settings)
        for topic, known in self._topic_ids.items():
            if topic not in states:
                return topic_gone(topic)
            if states[topic].id != known:
                return topic_replaced(topic)
        return records_lost(str(error))

    def _out_of_range(self, error: OffsetOutOfRangeError) -> Exception:
        places = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
        first, end = self._client.beginning_offsets(list(places)), self._client.end_offsets(list(places))
        for place, offset in places.items():
            try:
                check_range(place.topic, place.partition, offset, first[place], end[place])
            except ResyncRequired as reason:
                return reason
        return records_lost(str(error))


def check_range(topic: str, partition: int, offset: int, first: int, end: int) -> None:
    """Raise unless reading can go on at an offset."""
    if offset < first:
        raise ResyncRequired(
            "offsets-expired",
            f"records {offset} to {first - 1} of {topic}[{partition}] were removed before they were read",
            where=f"topic {topic}",
            fix=f"{READ_ANEW}; keep records longer (retention.ms) than the pipeline may be stopped",
        )
    if offset > end:
        raise records_lost(f"{topic}[{partition}] ends at {end}, and {offset} was to be read next")


def records_lost(what: str) -> ResyncRequired:
    """The error for records that were read and are no longer there."""
    return ResyncRequired(
        "records-lost",
        f"the brokers lost records that were read already: {what}",
        fix=f"{READ_ANEW}; see that unclean leader election is off",
    )


def topic_replaced(topic: str) -> ResyncRequired:
    """The error for a topic that is another one under the same name."""
    return ResyncRequired("topic-replaced", f"topic {topic} was deleted and created again", f"topic {topic}", READ_ANEW)


def topic_gone(topic: str) -> ResyncRequired:
    """The error for a topic that is no more."""
    return ResyncRequired("topic-gone", f"topic {topic} was deleted", f"topic {topic}", READ_ANEW)
