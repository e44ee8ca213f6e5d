"""Kafka topics behind Zero: see `docs/how-to/kafka.md`."""
