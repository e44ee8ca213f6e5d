"""The Kafka adapter: latency, rate beside kafka-python's own, and the snapshot of a large topic."""
