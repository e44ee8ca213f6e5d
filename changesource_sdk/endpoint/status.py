"""The status document of `/statusz` and `changesource inspect`, and the gauges of `/metrics`.

For every stage it has the position, the age of the last report and the age of the last progress. They distinguish
*stuck* (reports, but no progress while there is work), *slow* (progress, but the distance grows) and *dead* (no
reports); `verdict` is that word. Warnings of the pipeline count too: one that blocks the stream makes its stage
*stuck*, one that blocks a table makes it *degraded*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict
from time import time

from changesource_sdk.changelog.coordination.consumers import Consumer
from changesource_sdk.changelog.coordination.seeds import SeedRecord, uncovered
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.source_writer import table_names
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.endpoint.stream.acks import consumer_key
from changesource_sdk.endpoint.stream.subscription import Phase, Subscription
from changesource_sdk.observe.metrics import EndpointMetrics
from changesource_sdk.observe.stages import stage_of_source
from changesource_sdk.observe.warnings import REPORT, read_report, stages_only, warning_documents
from changesource_sdk.positions import from_text
from protocol.watermark import to_int

Document = dict[str, object]
#: A stage reports at least every five seconds; a busy machine may delay that, but not for this long.
DEAD_AFTER = 15.0
#: Work without progress for this long is stuck.
STUCK_AFTER = 30.0
#: The same, while a snapshot's partitions are planned: nothing progresses then, and large tables take long.
PLANNED_WITHIN = 300.0
#: The stage that warnings are about.
PIPELINE = "pipeline"
#: Dead letters and skips in the document; the log keeps more, and counts all.
SHOWN_LETTERS = 100
#: The name of the one source of a log.
DEFAULT_SOURCE = "default"
UNKNOWN = "unknown"


def describe(
    log_store: LogStore, reader: Log, known: Iterable[Consumer], open_streams: Iterable[Subscription] = ()
) -> Document:
    """The whole document. Blocking: reads the log and the reports of the stages."""
    now = time()
    log = _log(reader, now)
    head = str(log["head"])
    request = log_store.requests.pending_snapshot()
    reports = log_store.reports.all()
    warnings = warning_documents(read_report(reports.get(REPORT)), now)
    held = {str(each["holds"]) for each in warnings if each["current"]}
    return {
        "time": now,
        "state": str(log_store.layout.root),
        "stages": {
            name: _stage(report, now, held if name == PIPELINE else set())
            for name, report in stages_only(reports).items()
        },
        "sources": _sources(reader),
        "warnings": warnings,
        "log": log,
        "upstream": {
            name or DEFAULT_SOURCE: _upstream(reports.get(stage_of_source(name), {}), now)
            for name in _source_names(reader)
        },
        **_aside(reader, now),
        "snapshotRequest": {"above": request.above, "reason": request.reason} if request else None,
        "seeds": [_seed(item, reader, now) for item in log_store.seeds.all()],
        "subscribers": [_consumer(item, reader, now) for item in known],
        "streams": [_stream(item, reader, head, now) for item in open_streams],
    }


def set_gauges(document: Mapping[str, object], metrics: EndpointMetrics) -> None:
    """Copy the document's ages and distances into the metrics."""
    log, stages = document["log"], document["stages"]
    assert isinstance(log, dict)
    assert isinstance(stages, dict)
    metrics.log_head.set(to_int(log["head"])[0])
    metrics.log_oldest.set(to_int(log["oldest"])[0])
    for name, stage in stages.items():
        metrics.stage_age.labels(name).set(stage["age"])
        metrics.stage_count.labels(name).set(stage["transactions"])
        metrics.stage_failing.labels(name).set(stage["error"] is not None)
        metrics.stage_held_up.labels(name).set(stage["verdict"] in ("stuck", "degraded"))
    upstream = document["upstream"]
    assert isinstance(upstream, dict)
    # What is unknown has no series: 0 would say that the log has everything.
    for gauge, field in ((metrics.upstream_behind, "behind"), (metrics.upstream_seconds, "behindSeconds")):
        gauge.clear()
        for source, distance in upstream.items():
            if distance[field] != UNKNOWN:
                gauge.labels(source).set(distance[field])
    letters = document["deadLetters"]
    assert isinstance(letters, dict)
    # A table without letters has no series.
    metrics.dead_letters.clear()
    for each in letters["counts"]:
        metrics.dead_letters.labels(each["table"], each["outcome"]).set(each["count"])
    warnings = document["warnings"]
    assert isinstance(warnings, list)
    sources = document["sources"]
    assert isinstance(sources, dict)
    for name, source in sources.items():
        metrics.source_reads.labels(name).set(source["reads"])
        metrics.source_must_be_read.labels(name).set(source["mustBeRead"])
    metrics.warnings.set(sum(each["current"] for each in warnings))
    metrics.seed_age.clear()
    metrics.seed_bytes.clear()
    seeds = document["seeds"]
    assert isinstance(seeds, list)
    for item in seeds:  # oldest first: the newest of an app and shard remains
        if item["state"] == "ready" and item["problem"] is None:
            metrics.seed_age.labels(item["app"], item["shard"]).set(item["age"])
            metrics.seed_bytes.labels(item["app"], item["shard"]).set(item["bytes"])
    subscribers = document["subscribers"]
    assert isinstance(subscribers, list)
    for item in subscribers:
        metrics.behind.labels(item["app"], item["shard"]).set(item["behind"])


def _log(reader: Log, now: float) -> Document:
    state = reader.state()
    known = reader.snapshots()
    newest = known[-1] if known else None
    return {
        "generation": state.generation,
        "head": state.head,
        "oldest": state.oldest,
        "transactions": state.transactions,
        "position": state.position,
        "snapshot": newest.watermark if newest else None,
        "snapshotAge": now - newest.created_ms / 1000 if newest else None,
    }


def _upstream(report: Mapping[str, object], now: float) -> Document:
    """How far the log is behind the upstream; `behind` and `behindSeconds` are "unknown" if nothing says it, or nothing
    has said for a while that the log has everything.
    """
    head = report.get("upstream")
    if not isinstance(head, dict):
        return {"head": None, "behind": UNKNOWN, "behindSeconds": UNKNOWN, "age": None, "error": ""}
    behind = UNKNOWN if head.get("behind") is None else head["behind"]
    age = now - _number(head, "read_ms") / 1000
    # The log may have lacked something ever since the report was written.
    behind_s = _number(head, "behind_s") + max(0.0, now - _number(report, "updated_ms") / 1000)
    seconds: float | str = behind_s if _number(head, "behind_s") else 0.0
    if behind == 0 and (age > DEAD_AFTER or head.get("error")):
        behind = seconds = UNKNOWN
    return {
        "head": head.get("head"),
        "behind": behind,
        "behindSeconds": seconds,
        "age": age,
        "error": head.get("error", ""),
    }


def _aside(reader: Log, now: float) -> Document:
    """What consumers did not get: the newest dead letters and skips, and the number of all letters."""
    kept = reader.kept_aside(SHOWN_LETTERS)
    letters = [{**asdict(letter), "age": now - letter.at_ms / 1000} for letter in kept.letters]
    skips = [{**asdict(skip), "age": now - skip.at_ms / 1000} for skip in kept.skips]
    counts = [
        {"table": table, "outcome": outcome, "count": count} for (table, outcome), count in sorted(kept.counts.items())
    ]
    return {
        "deadLetters": {"total": sum(kept.counts.values()), "counts": counts, "newest": letters},
        "skips": skips,
    }


def _sources(reader: Log) -> dict[str, Document]:
    """The named sources that share the log: position and tables of each. How each is doing is in its stage."""
    return {
        row.name: {
            "stage": stage_of_source(row.name),
            "position": None if row.position is None else from_text(row.position),
            "mustBeRead": row.position is None,
            "tables": list(table_names(row.schema)),
            "reads": row.reads,
        }
        for row in reader.state().sources.values()
        if row.schema or row.position is not None
    }


def _source_names(reader: Log) -> list[str]:
    """The named sources that share the log; "" alone for a log of one upstream."""
    return [row.name for row in reader.state().sources.values() if row.schema or row.position is not None] or [""]


def _number(report: Mapping[str, object], field: str) -> float:
    value = report.get(field)
    return value if isinstance(value, int | float) else 0


def _stage(report: Mapping[str, object], now: float, held: Set[str]) -> Document:
    age = now - _number(report, "updated_ms") / 1000
    moved = _number(report, "moved_ms")
    since_progress = now - moved / 1000 if moved else None
    shown = {key: value for key, value in report.items() if key not in ("stage", "updated_ms", "moved_ms")}
    return {
        **shown,
        "age": age,
        "sinceProgress": since_progress,
        "verdict": _stage_verdict(report, age, since_progress or 0, held),
    }


def _stage_verdict(report: Mapping[str, object], age: float, since_progress: float, held: Set[str]) -> str:
    if report.get("state") == "stopped":
        return "stopped"
    if report.get("state") == "idle":
        return "ok"  # nothing to do is nothing to report
    if age > DEAD_AFTER:
        return "dead"
    if report.get("error"):
        return "failing"
    allowed = STUCK_AFTER if report.get("total") else PLANNED_WITHIN
    if report.get("state") == "snapshot" and since_progress > allowed:
        return "stuck"
    if "stream" in held:
        return "stuck"
    return "degraded" if "table" in held else "ok"


def _consumer(item: Consumer, reader: Log, now: float) -> Document:
    return {
        "app": item.key.app_id,
        "shard": item.key.shard,
        "replicaVersion": item.key.replica_version,
        "acknowledged": item.acknowledged,
        "behind": reader.count_after(item.acknowledged),
        "age": now - item.seen_ms / 1000,
    }


def _seed(item: SeedRecord, reader: Log, now: float) -> Document:
    return {
        "version": item.version,
        "app": item.app_id,
        "shard": item.shard,
        "release": item.release,
        "watermark": item.watermark,
        "behind": reader.count_after(item.watermark),
        "state": item.state,
        "age": now - item.created_ms / 1000,
        "rows": item.rows,
        "bytes": item.bytes,
        "target": item.target,
        "problem": uncovered(reader, item.watermark),
    }


def _stream(item: Subscription, reader: Log, head: str, now: float) -> Document:
    key = consumer_key(item.handshake)
    behind = reader.count_after(item.sent) if item.sent else 0
    return {
        "app": key.app_id,
        "shard": key.shard,
        "replicaVersion": key.replica_version,
        "dialect": item.handshake.dialect,
        "phase": item.phase.value,
        "sent": item.sent,
        "acknowledged": item.acked,
        "behind": behind,
        "unacknowledged": reader.count_after(item.acked) - behind if item.acked else None,
        "open": now - item.opened,
        "silent": item.silent_for(),
        "verdict": _stream_verdict(item, head),
    }


def _stream_verdict(item: Subscription, head: str) -> str:
    if item.phase in (Phase.WAITING, Phase.RESET):
        return item.phase.value
    busy = item.phase is Phase.SNAPSHOT or (item.sent or "") < head
    if not busy:
        return "ok"
    return "stuck" if item.silent_for() > STUCK_AFTER else "behind"
