"""Kafka topics under faults."""
