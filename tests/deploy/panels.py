"""The list of the dashboard's panels, by row; `deploy/observability/dashboard.json` is made of it.

`ON` limits a query to the chosen instances. What exists only after something went wrong (`_rare`) is 0 until then.
"""

from __future__ import annotations

from dataclasses import dataclass

ON = 'instance=~"$instance"'
RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph: `unit` is Grafana's name of the unit, `legend` its pattern for the name of a series."""

    title: str
    query: str
    about: str
    unit: str = "short"
    legend: str = "{{instance}}"


def _rate(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}{{{ON}}}{RATE}))"


def _rare(metric: str) -> str:
    return f"sum(increase({metric}{{{ON}}}[1h])) or vector(0)"


def _now(metric: str) -> str:
    return f"{metric}{{{ON}}}"


def _quantile(share: float) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate(changesource_send_lag_seconds_bucket{{{ON}}}{RATE})))"


ROWS: dict[str, tuple[Panel, ...]] = {
    "Upstream lag": (
        Panel(
            "Behind the upstream",
            _now("changesource_upstream_behind_seconds"),
            "For how long the log has lacked something; no value: the adapter does not report it.",
            "s",
            "{{source}}",
        ),
        Panel(
            "Positions behind the upstream",
            _now("changesource_upstream_behind"),
            "Positions of the upstream that the log does not have yet.",
            "short",
            "{{source}}",
        ),
        Panel("Commit to socket, median", _quantile(0.5), "From upstream commit to the consumer's socket.", "s", "p50"),
        Panel("Commit to socket, 99 %", _quantile(0.99), "From upstream commit to the consumer's socket.", "s", "p99"),
    ),
    "Pipeline": (
        Panel(
            "Last report of each stage",
            _now("changesource_stage_age_seconds"),
            "A stage reports at least every five seconds.",
            "s",
            "{{stage}}",
        ),
        Panel(
            "Transactions handled",
            f"deriv(changesource_stage_count{{{ON}}}{RATE})",
            "Transactions each second, by stage.",
            "ops",
            "{{stage}}",
        ),
        Panel(
            "Failing stages",
            f"sum by (stage) (changesource_stage_failing{{{ON}}})",
            "1 while a stage fails.",
            "short",
            "{{stage}}",
        ),
        Panel(
            "Stages held up",
            f"sum by (stage) (changesource_stage_held_up{{{ON}}})",
            "1 while a stage, or a table of it, makes no progress.",
            "short",
            "{{stage}}",
        ),
        Panel("Warnings", _now("changesource_warnings"), "Warnings of the pipeline that hold now."),
        Panel(
            "Dead letters",
            f"sum(changesource_dead_letters{{{ON}}}) or vector(0)",
            "Rows that consumers did not get as they are upstream.",
            "short",
            "rows",
        ),
        Panel(
            "Sources that wait",
            f"sum(changesource_source_must_be_read{{{ON}}}) or vector(0)",
            "Named sources that wait to be read as a whole.",
            "short",
            "sources",
        ),
        Panel(
            "Reads of named sources",
            f"sum(changesource_source_reads{{{ON}}}) or vector(0)",
            "How often named sources were read as a whole.",
            "short",
            "reads",
        ),
        Panel(
            "Age of the newest seed",
            _now("changesource_seed_age_seconds"),
            "With `--seed-every`.",
            "s",
            "{{app}}/{{shard}}",
        ),
        Panel(
            "Size of the newest seed", _now("changesource_seed_bytes"), "As a replica.", "bytes", "{{app}}/{{shard}}"
        ),
    ),
    "Endpoint": (
        Panel(
            "Open streams", f"sum by (state) (changesource_consumers{{{ON}}})", "By what they do.", "short", "{{state}}"
        ),
        Panel(
            "Behind the log",
            _now("changesource_consumer_behind_transactions"),
            "Transactions that a consumer has not acknowledged.",
            "short",
            "{{app}}/{{shard}}",
        ),
        Panel("Transactions sent", _rate("changesource_sent_transactions_total"), "To all consumers.", "ops"),
        Panel("Messages sent", _rate("changesource_sent_frames_total"), "Protocol messages.", "ops"),
        Panel("Bytes sent", _rate("changesource_sent_bytes_total"), "To consumers' sockets.", "Bps"),
        Panel("Acknowledgements", _rate("changesource_acks_total"), "From all consumers.", "ops"),
        Panel(
            "Transactions read from the log",
            _rate("changesource_tail_transactions_total"),
            "Once for all consumers.",
            "ops",
        ),
        Panel("Recent transactions in memory", _now("changesource_tail_bytes"), "Bytes that consumers share.", "bytes"),
        Panel(
            "Length of the log",
            f"changesource_log_head{{{ON}}} - changesource_log_oldest{{{ON}}}",
            "Newest watermark less the oldest one kept.",
        ),
        Panel(
            "Streams accepted",
            _rate("changesource_connections_total", "kind"),
            "A new sync, or one that continues.",
            "ops",
            "{{kind}}",
        ),
        Panel(
            "Streams by key",
            _rate("changesource_key_uses_total", "key"),
            "By the name of the API key.",
            "ops",
            "{{key}}",
        ),
        Panel(
            "Resets in an hour",
            _rare("changesource_resets_total"),
            "Consumers that had to sync again.",
            "short",
            "resets",
        ),
        Panel(
            "Streams ended in an hour", _rare("changesource_ended_streams_total"), "For any reason.", "short", "streams"
        ),
        Panel(
            "Requests refused in an hour",
            _rare("changesource_rejections_total"),
            "For any reason.",
            "short",
            "requests",
        ),
    ),
    "Cache": (
        Panel("Client sockets", _now("changesource_cache_connections"), "Open now."),
        Panel("Client groups", _now("changesource_cache_groups"), "Groups that are being synced."),
        Panel("Distinct queries", _now("changesource_cache_queries"), "Each is evaluated once for all clients."),
        Panel("Rows of queries", _now("changesource_cache_rows"), "Rows of the running queries."),
        Panel(
            "Waiting for clients",
            _now("changesource_cache_waiting_bytes"),
            "Bytes that clients have not read yet.",
            "bytes",
        ),
        Panel(
            "Waiting from clients", _now("changesource_cache_intake_bytes"), "Bytes that wait to be handled.", "bytes"
        ),
        Panel("Sockets opened", _rate("changesource_cache_connections_opened_total"), "Clients that connect.", "ops"),
        Panel("Messages from clients", _rate("changesource_cache_messages_total", "tag"), "By kind.", "ops", "{{tag}}"),
        Panel("Errors in an hour", _rare("changesource_cache_errors_total"), "Sent to clients.", "short", "errors"),
        Panel(
            "Refused in an hour", _rare("changesource_cache_refused_total"), "Requests of clients.", "short", "requests"
        ),
        Panel(
            "Throttled in an hour",
            _rare("changesource_cache_throttled_total"),
            "Clients that sent too fast.",
            "short",
            "times",
        ),
        Panel(
            "Dropped in an hour",
            _rare("changesource_cache_dropped_total"),
            "Clients that read too slowly.",
            "short",
            "clients",
        ),
    ),
}
