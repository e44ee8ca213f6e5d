"""The ends of the followed partitions, read with a client of its own. Used by one thread."""

from __future__ import annotations

from collections.abc import Iterable

from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from adapters.kafka.broker.client import make_consumer, translated_errors
from adapters.kafka.settings import KafkaSettings


class EndReader:
    """Asks the brokers for end offsets."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        # Made by the first call of `ends`, and again after it failed.
        self._client: KafkaConsumer | None = None

    def ends(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The offset after the last record of every partition, by topic. Raises `AdapterError`."""
        if self._client is None:
            self._client = make_consumer(self._settings)
        try:
            with translated_errors(self._settings):
                partitions = [
                    TopicPartition(topic, number)
                    for topic in topics
                    for number in sorted(self._client.partitions_for_topic(topic) or ())
                ]
                ends = self._client.end_offsets(partitions)
        except BaseException:
            self.close()
            raise
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(ends[partition])
        return by_topic

    def close(self) -> None:
        """Close the client; the next call makes another."""
        if self._client is not None:
            self._client.close()
            self._client = None
