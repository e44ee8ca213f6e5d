"""Counters and gauges of a cache, in Prometheus' text form."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST


class CacheMetrics:
    """The metrics of one cache, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.connections = Gauge("changesource_cache_connections", "Open client sockets", registry=registry)
        self.groups = Gauge("changesource_cache_groups", "Client groups that are being synced", registry=registry)
        self.queries = Gauge("changesource_cache_queries", "Distinct queries that are running", registry=registry)
        self.rows = Gauge("changesource_cache_rows", "Rows of the running queries", registry=registry)
        self.waiting_bytes = Gauge(
            "changesource_cache_waiting_bytes", "Bytes that wait to be sent to clients", registry=registry
        )
        self.intake_bytes = Gauge(
            "changesource_cache_intake_bytes", "Bytes from clients that wait to be handled", registry=registry
        )
        self.opened = Counter(
            "changesource_cache_connections_opened", "Sockets opened since the start", registry=registry
        )
        self.messages = Counter("changesource_cache_messages", "Messages from clients", ["tag"], registry=registry)
        self.errors = Counter("changesource_cache_errors", "Errors sent to clients", ["kind"], registry=registry)
        self.throttled = Counter(
            "changesource_cache_throttled",
            "Times a client was read more slowly because it sent too fast",
            registry=registry,
        )
        self.refused = Counter("changesource_cache_refused", "Requests refused", ["reason"], registry=registry)
        self.dropped = Counter(
            "changesource_cache_dropped", "Clients disconnected because they read too slowly", registry=registry
        )

    def render(self) -> bytes:
        return generate_latest(self.registry)
