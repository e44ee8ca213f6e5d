"""Kafka topics behind Zero: see `docs/how-to/kafka.md`."""

from adapters.kafka.adapter import KafkaAdapter

__all__ = ["KafkaAdapter"]
