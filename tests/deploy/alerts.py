"""The list of alerts: `deploy/observability/alerts.yml`, its cases for promtool and the reference page are made of it.

Contract: each alert has a case in which it fires and one in which it stays quiet. Series are in promtool's notation
(`0+1x20`: from 0, 20 steps of 1), one value each minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Series = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule: `expression` has to hold for `minutes`; `labels` are those of the alert in the case that fires."""

    name: str
    expression: str
    minutes: int
    severity: str
    summary: str
    action: str
    fires: Series
    quiet: Series
    labels: Mapping[str, str] = field(default_factory=dict)
    after_minutes: int = 20
    """When the cases are examined."""


ALERTS = (
    Alert(
        "ChangesourceDown",
        'up{job=~"changesource.*"} == 0',
        2,
        "critical",
        "An endpoint or a cache does not answer.",
        "Is the process running, and is its port reachable? Metrics need a key or the admin password where one is set.",
        {'up{job="changesource-endpoint"}': "0x30"},
        {'up{job="changesource-endpoint"}': "1x30", 'up{job="other"}': "0x30"},
        {"job": "changesource-endpoint"},
    ),
    Alert(
        "ChangesourceStageFailing",
        "changesource_stage_failing == 1",
        5,
        "critical",
        "Stage {{ $labels.stage }} fails repeatedly.",
        "`/statusz` and `changesource inspect` have the error and its fix.",
        {'changesource_stage_failing{stage="pipeline"}': "1x30"},
        {'changesource_stage_failing{stage="pipeline"}': "1x3 0x30"},
        {"stage": "pipeline"},
    ),
    Alert(
        "ChangesourceStageHeldUp",
        "changesource_stage_held_up == 1",
        5,
        "warning",
        "Stage {{ $labels.stage }}, or a table of it, makes no progress.",
        "`/statusz` has the warning that holds it up.",
        {'changesource_stage_held_up{stage="pipeline"}': "1x30"},
        {'changesource_stage_held_up{stage="pipeline"}': "0x30"},
        {"stage": "pipeline"},
    ),
    Alert(
        "ChangesourcePipelineSilent",
        'changesource_stage_age_seconds{stage="pipeline"} > 60',
        1,
        "critical",
        "No pipeline has reported for {{ $value | humanizeDuration }}.",
        "What is in the log is still served. Start the pipeline, or read its log to see why it ended.",
        {'changesource_stage_age_seconds{stage="pipeline"}': "0+60x30"},
        {
            'changesource_stage_age_seconds{stage="pipeline"}': "5x30",
            'changesource_stage_age_seconds{stage="x"}': "99x30",
        },
        {"stage": "pipeline"},
    ),
    Alert(
        "ChangesourceUpstreamLag",
        "changesource_upstream_behind_seconds > 60",
        5,
        "warning",
        "The log lacks something of source {{ $labels.source }} for {{ $value | humanizeDuration }}.",
        "No value means that the adapter does not report it. Examine the pipeline's warnings and the upstream's load.",
        {'changesource_upstream_behind_seconds{source="default"}': "0+60x30"},
        {'changesource_upstream_behind_seconds{source="default"}': "2x30"},
        {"source": "default"},
    ),
    Alert(
        "ChangesourceSourceWaits",
        "changesource_source_must_be_read == 1",
        30,
        "warning",
        "Source {{ $labels.source }} waits to be read as a whole.",
        "Other sources continue. `changesource inspect` says why the source is not read.",
        {'changesource_source_must_be_read{source="orders"}': "1x60"},
        {'changesource_source_must_be_read{source="orders"}': "1x10 0x60"},
        {"source": "orders"},
        after_minutes=45,
    ),
    Alert(
        "ChangesourceDeadLetters",
        "sum by (instance, table) (changesource_dead_letters) > 0",
        0,
        "warning",
        "Consumers lack rows of table {{ $labels.table }} or have nulls in them.",
        "`changesource inspect` lists the rows with the reason and the fix.",
        {'changesource_dead_letters{table="items",outcome="left-out"}': "0x5 3x30"},
        {'changesource_dead_letters{table="items",outcome="left-out"}': "0x30"},
        {"table": "items"},
    ),
    Alert(
        "ChangesourceConsumerReset",
        "increase(changesource_resets_total[1h]) > 0",
        0,
        "warning",
        "A consumer had to sync again ({{ $labels.reason }}).",
        "The official zero-cache ends with code 14 and needs a supervisor that starts it again.",
        {'changesource_resets_total{reason="gap"}': "0x5 1x30"},
        {'changesource_resets_total{reason="gap"}': "4x30"},
        {"reason": "gap"},
    ),
    Alert(
        "ChangesourceConsumerFallsBehind",
        "deriv(changesource_consumer_behind_transactions[15m]) > 0 "
        "and changesource_consumer_behind_transactions > 1000",
        15,
        "warning",
        "Cache {{ $labels.app }}/{{ $labels.shard }} is {{ $value }} transactions further behind each second.",
        "It does not keep up or does not connect, and the log is kept for it. Start it, or remove it.",
        {'changesource_consumer_behind_transactions{app="zero",shard="0"}': "0+600x60"},
        {'changesource_consumer_behind_transactions{app="zero",shard="0"}': "9000-100x60"},
        {"app": "zero", "shard": "0"},
        after_minutes=40,
    ),
    Alert(
        "ChangesourceStreamsEnd",
        'sum by (instance, reason) (increase(changesource_ended_streams_total{reason!="peer-left"}[5m])) > 10',
        5,
        "warning",
        "Streams end again and again ({{ $labels.reason }}).",
        "The endpoint's log names the consumer and the error.",
        {'changesource_ended_streams_total{reason="protocol"}': "0+6x40"},
        {'changesource_ended_streams_total{reason="peer-left"}': "0+60x40"},
        {"reason": "protocol"},
    ),
    Alert(
        "ChangesourceRequestsRefused",
        "sum by (instance, reason) (increase(changesource_rejections_total[5m])) > 20",
        5,
        "warning",
        "The endpoint refuses requests ({{ $labels.reason }}).",
        "`key`: a wrong key; `origin`: a web page; `connections`, `rate`: too many from one address; "
        "`descriptors`: no file descriptor left.",
        {'changesource_rejections_total{reason="key"}': "0+10x40"},
        {'changesource_rejections_total{reason="key"}': "0+1x40"},
        {"reason": "key"},
    ),
    Alert(
        "ChangesourceSlowDelivery",
        "histogram_quantile(0.99, sum by (instance, le) (rate(changesource_send_lag_seconds_bucket[5m]))) > 5",
        10,
        "warning",
        "One transaction in a hundred takes longer than {{ $value | humanizeDuration }} to consumers.",
        "Compare with the upstream's lag: the pipeline is slow if it grows too, else the consumers are.",
        {
            'changesource_send_lag_seconds_bucket{le="5"}': "0x40",
            'changesource_send_lag_seconds_bucket{le="10"}': "0+60x40",
            'changesource_send_lag_seconds_bucket{le="+Inf"}': "0+60x40",
        },
        {
            'changesource_send_lag_seconds_bucket{le="0.005"}': "0+60x40",
            'changesource_send_lag_seconds_bucket{le="+Inf"}': "0+60x40",
        },
    ),
    Alert(
        "ChangesourceCacheDropsClients",
        "increase(changesource_cache_dropped_total[5m]) > 5",
        0,
        "warning",
        "The cache disconnects clients that read too slowly.",
        "Clients on slow links, or queries with too many rows for them: examine `changesource_cache_waiting_bytes`.",
        {"changesource_cache_dropped_total": "0+3x40"},
        {"changesource_cache_dropped_total": "0x5 1x35"},
    ),
    Alert(
        "ChangesourceCacheIntakeFull",
        "min_over_time(changesource_cache_intake_bytes[10m]) > 100e6",
        0,
        "warning",
        "{{ $value | humanize1024 }}B from clients wait to be handled.",
        "The application does not process mutations as fast as clients send them.",
        {"changesource_cache_intake_bytes": "200000000x40"},
        {"changesource_cache_intake_bytes": "200000000x5 0x40"},
    ),
    Alert(
        "ChangesourceCacheErrors",
        "sum by (instance, kind) (increase(changesource_cache_errors_total[5m])) > 20",
        5,
        "warning",
        "Clients get errors ({{ $labels.kind }}).",
        "The cache's log has the message of each.",
        {'changesource_cache_errors_total{kind="Internal"}': "0+10x40"},
        {'changesource_cache_errors_total{kind="Internal"}': "0+1x40"},
        {"kind": "Internal"},
    ),
    Alert(
        "ChangesourceCacheRefusesClients",
        "sum by (instance, reason) (increase(changesource_cache_refused_total[5m])) > 20",
        5,
        "warning",
        "The cache refuses connections ({{ $labels.reason }}).",
        "`not-ready`: no replica yet; `too-many`, `connections`: raise the limit or add a cache; "
        "`origin`, `handshake`: foreign clients.",
        {'changesource_cache_refused_total{reason="too-many"}': "0+10x40"},
        {'changesource_cache_refused_total{reason="too-many"}': "0x40"},
        {"reason": "too-many"},
    ),
)
