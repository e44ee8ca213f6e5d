"""The endpoint's Prometheus metrics, in a registry of their own.

There is one `EndpointMetrics` per endpoint process; `render` returns the text of `/metrics`. A position of the upstream
may be any JSON value, so the metrics of a stage are its age and counts; `/statusz` has its position.
"""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LAG_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class EndpointMetrics:
    """All counters of one endpoint. Invariant: counters only grow for the life of the process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        reg = self.registry
        self.consumers = Gauge("changesource_consumers", "Open streams.", ["state"], registry=reg)
        self.connections = Counter("changesource_connections", "Streams accepted.", ["kind"], registry=reg)
        self.key_uses = Counter(
            "changesource_key_uses", "Streams accepted, by the name of the API key.", ["key"], registry=reg
        )
        self.sent_bytes = Counter("changesource_sent_bytes", "Bytes handed to consumers' sockets.", registry=reg)
        self.sent_transactions = Counter("changesource_sent_transactions", "Transactions sent.", registry=reg)
        self.sent_frames = Counter("changesource_sent_frames", "Protocol messages sent.", registry=reg)
        self.acks = Counter("changesource_acks", "Acknowledgements received.", registry=reg)
        self.resets = Counter("changesource_resets", "Consumers that were reset.", ["reason"], registry=reg)
        self.rejections = Counter("changesource_rejections", "Requests refused.", ["reason"], registry=reg)
        self.ended = Counter("changesource_ended_streams", "Streams that ended.", ["reason"], registry=reg)
        self.lag = Histogram(
            "changesource_send_lag_seconds",
            "From upstream commit to the consumer's socket.",
            buckets=_LAG_BUCKETS,
            registry=reg,
        )
        self.tail_reads = Counter(
            "changesource_tail_transactions", "Transactions read from the log, once for all consumers.", registry=reg
        )
        self.tail_bytes = Gauge("changesource_tail_bytes", "Bytes of recent transactions in memory.", registry=reg)
        self.log_head = Gauge("changesource_log_head", "Newest watermark, as a number.", registry=reg)
        self.log_oldest = Gauge("changesource_log_oldest", "Oldest watermark kept, as a number.", registry=reg)
        self.stage_age = Gauge(
            "changesource_stage_age_seconds", "Time since a stage last reported.", ["stage"], registry=reg
        )
        self.stage_count = Gauge(
            "changesource_stage_count", "Transactions that a stage has handled.", ["stage"], registry=reg
        )
        self.stage_failing = Gauge("changesource_stage_failing", "1 while a stage fails.", ["stage"], registry=reg)
        self.stage_held_up = Gauge(
            "changesource_stage_held_up",
            "1 while a stage, or a table of it, makes no progress.",
            ["stage"],
            registry=reg,
        )
        self.source_reads = Gauge(
            "changesource_source_reads", "How often a named source was read as a whole.", ["source"], registry=reg
        )
        self.source_must_be_read = Gauge(
            "changesource_source_must_be_read", "1 while a named source waits to be read.", ["source"], registry=reg
        )
        self.warnings = Gauge("changesource_warnings", "Warnings of the pipeline that hold now.", registry=reg)
        self.upstream_behind = Gauge(
            "changesource_upstream_behind",
            "Positions of the upstream that the log does not have yet; no value if the adapter does not report it.",
            ["source"],
            registry=reg,
        )
        self.upstream_seconds = Gauge(
            "changesource_upstream_behind_seconds",
            "For how long the log has lacked something of the upstream; no value if the adapter does not report it.",
            ["source"],
            registry=reg,
        )
        self.dead_letters = Gauge(
            "changesource_dead_letters",
            "Rows that consumers did not get as they are upstream: left out, or with a null.",
            ["table", "outcome"],
            registry=reg,
        )
        self.behind = Gauge(
            "changesource_consumer_behind_transactions",
            "Transactions in the log that a consumer has not acknowledged.",
            ["app", "shard"],
            registry=reg,
        )

        self.seed_age = Gauge(
            "changesource_seed_age_seconds",
            "Age of the newest seed that the log continues.",
            ["app", "shard"],
            registry=reg,
        )
        self.seed_bytes = Gauge(
            "changesource_seed_bytes",
            "Size of the newest seed that the log continues, as a replica.",
            ["app", "shard"],
            registry=reg,
        )

    def render(self) -> bytes:
        """Return the text of `/metrics`."""
        return generate_latest(self.registry)
