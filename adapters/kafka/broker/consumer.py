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

from adapters.kafka.broker.client import NO_TOPIC, make_consumer, topic_states, translated_errors
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.transactions.assembly import Partition
from changesource_sdk import ResyncRequired

Batch: TypeAlias = dict[Partition, list[ConsumerRecord]]

POLL_MS = 200
"""How long a poll without records takes, and so does `close` at most; records end it at once."""
BATCH_RECORDS = 5_000
REFRESH_MS = 5_000
SILENT_AFTER_S = 12.0
"""More than two metadata requests (`REFRESH_MS`) without an answer."""
GONE_AFTER_S = 5.0
"""A broker that has just started may not know its topics yet."""
RESYNC = "nothing to do: the topics are read again from the start and consumers are reset"


class PartitionConsumer:
    """Follows partitions from fixed offsets. Each record comes once, in the order of its partition. One thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic_ids: Mapping[str, str],
        starts: Mapping[Partition, int],
        before: Mapping[Partition, int] | None = None,
    ) -> None:
        """`before`: how many records before the start of a partition are read again, if they still exist."""
        self._settings = settings
        self._before = before or {}
        self._topic_ids = topic_ids
        # When each topic was first missing in the metadata; removed when it is back. Written by `_same_topics`.
        self._missing_since: dict[str, float] = {}
        # All assigned partitions, as kafka-python and as we name them; `new_partitions` adds to it.
        self._partitions = {TopicPartition(*partition): partition for partition in starts}
        options = {"max_poll_records": BATCH_RECORDS, "metadata_max_age_ms": REFRESH_MS}
        self._client: KafkaConsumer = make_consumer(settings, **options)
        # kafka-python has no public way to read topic ids or to notice that brokers are silent; its cluster metadata
        # has.
        self._cluster = self._client._cluster
        self._cluster.add_listener(self._note_answer)
        # Monotonic seconds of the last metadata answer; written by kafka-python's listener during `poll`.
        self._answered_at = time.monotonic()
        try:
            self._begin({TopicPartition(*partition): offset for partition, offset in starts.items()})
        except BaseException:
            self._client.close()
            raise

    def poll(self) -> Batch:
        """The records that have arrived; empty after `POLL_MS` without any. Raises `ResyncRequired`."""
        with translated_errors(self._settings):
            try:
                records_by_partition = self._client.poll(timeout_ms=POLL_MS)
            except OffsetOutOfRangeError as error:
                raise self._out_of_range(error) from error
            except LogTruncationError as error:
                raise self._truncated(error) from error
        # Before the records are used: they may belong to a topic that has replaced the followed one.
        self._same_topics()
        return {self._partitions[partition]: records for partition, records in records_by_partition.items()}

    @property
    def silence_s(self) -> float:
        """Seconds since the brokers last answered a metadata request, which is sent every `REFRESH_MS`."""
        return time.monotonic() - self._answered_at

    def new_partitions(self) -> list[Partition]:
        """Partitions that were added to the followed topics; reads them from their first record on."""
        new = [
            TopicPartition(topic, number)
            for topic in self._topic_ids
            for number in sorted(self._client.partitions_for_topic(topic) if topic not in self._missing_since else ())
            if TopicPartition(topic, number) not in self._partitions
        ]
        if new:
            positions = {partition: self._client.position(partition) for partition in self._partitions}
            self._partitions |= {partition: (partition.topic, partition.partition) for partition in new}
            self._client.assign(list(self._partitions))
            for partition, offset in {**positions, **dict.fromkeys(new, 0)}.items():
                self._client.seek(partition, offset)
        return [(partition.topic, partition.partition) for partition in new]

    def positions(self) -> dict[Partition, int]:
        """The next offset to read of every partition. It passes the markers of transactions, which are no records."""
        offsets = {partition: self._client.position(partition) for partition in self._partitions}
        return {self._partitions[partition]: offset for partition, offset in offsets.items() if offset is not None}

    def close(self) -> None:
        self._client.close()

    def _begin(self, starts: Mapping[TopicPartition, int]) -> None:
        self._client.assign(list(starts))
        with translated_errors(self._settings):
            first = self._client.beginning_offsets(list(starts))
            end = self._client.end_offsets(list(starts))
        for partition, offset in starts.items():
            check_range(partition.topic, partition.partition, offset, first[partition], end[partition])
            again = self._before.get(self._partitions[partition], 0)
            self._client.seek(partition, max(first[partition], offset - again))

    def _same_topics(self) -> None:
        """Raise if a followed topic was deleted or replaced."""
        for topic, known in self._topic_ids.items():
            current = self._cluster.topic_id(topic)
            if current is not None and str(current) not in (known, NO_TOPIC):
                raise topic_replaced(topic)
            if current is not None and str(current) == known:
                self._missing_since.pop(topic, None)
            elif time.monotonic() - self._missing_since.setdefault(topic, time.monotonic()) > GONE_AFTER_S:
                raise topic_gone(topic)

    def _note_answer(self, _: object) -> None:
        self._answered_at = time.monotonic()

    def _truncated(self, error: LogTruncationError) -> Exception:
        """Why records are missing: the topic was deleted or replaced, or the brokers lost them."""
        states = topic_states(self._settings)
        for topic, known in self._topic_ids.items():
            if topic not in states:
                return topic_gone(topic)
            if states[topic].id != known:
                return topic_replaced(topic)
        return records_lost(str(error))

    def _out_of_range(self, error: OffsetOutOfRangeError) -> Exception:
        partitions = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
        first, end = self._client.beginning_offsets(list(partitions)), self._client.end_offsets(list(partitions))
        for partition, offset in partitions.items():
            try:
                check_range(partition.topic, partition.partition, offset, first[partition], end[partition])
            except ResyncRequired as reason:
                return reason
        return records_lost(str(error))


def check_range(topic: str, partition: int, offset: int, first: int, end: int) -> None:
    """Raise `ResyncRequired` unless reading can continue at an offset."""
    if offset < first:
        raise ResyncRequired(
            "offsets-expired",
            f"records {offset} to {first - 1} of {topic}[{partition}] were removed before they were read",
            where=f"topic {topic}",
            fix=f"{RESYNC}; keep records longer (retention.ms) than the pipeline may be stopped",
        )
    if offset > end:
        raise records_lost(f"{topic}[{partition}] ends at {end}, and {offset} was to be read next")


def records_lost(what: str) -> ResyncRequired:
    """The error for records that were read and no longer exist."""
    return ResyncRequired(
        "records-lost",
        f"the brokers lost records that were read already: {what}",
        fix=f"{RESYNC}; see that unclean leader election is off",
    )


def topic_replaced(topic: str) -> ResyncRequired:
    """The error for a topic that was deleted and created again."""
    return ResyncRequired("topic-replaced", f"topic {topic} was deleted and created again", f"topic {topic}", RESYNC)


def topic_gone(topic: str) -> ResyncRequired:
    """The error for a topic that was deleted."""
    return ResyncRequired("topic-gone", f"topic {topic} was deleted", f"topic {topic}", RESYNC)
