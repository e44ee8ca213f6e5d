"""How far every part of the flow is, in one unit, for the page to draw. Pure.

Positions are transactions of the log since `origin`, its first snapshot, so any two parts can be compared. The upstream
counts changed keys instead, and is compared with what the pipeline has read of them. A value is None while the process
that knows it does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from protocol.watermark import is_valid, to_int

Document = Mapping[str, object]
"""A `/statusz` document, or a part of one."""
UNKNOWN = "unknown"
_Position = Callable[[object], int | None]


class UpstreamProgress(TypedDict):
    """What the writer has done: transactions, their rate, seconds since the last, and the newest changed key."""

    writes: int
    perSecond: float
    age: float | None
    touched: int | None


def draw(
    upstream: UpstreamProgress, log: Document | None, endpoint: Document | None, cache: Document | None, origin: int
) -> dict[str, dict[str, object]]:
    """Return the picture, from the writer's progress and the status of log, endpoint and cache."""

    def position_of(watermark: object) -> int | None:
        number = number_of(watermark)
        return None if number is None else max(0, number - origin)

    # The endpoint was read a moment after the log, so it may be further.
    known = (position_of(_at(log, "log", "head")), _sent(endpoint, position_of))
    head = max((each for each in known if each is not None), default=None)
    return {
        "store": _upstream(upstream, log),
        "pipeline": _pipeline(log, position_of),
        "log": {
            "position": head,
            "snapshotAge": _at(log, "log", "snapshotAge"),
            "behindUpstream": _behind_upstream(log, "behind"),
            "behindSeconds": _behind_upstream(log, "behindSeconds"),
            "deadLetters": _at(log, "deadLetters", "total"),
        },
        "endpoint": _endpoint(endpoint, head, position_of),
        "replica": _replica(cache, head, position_of),
        "queries": _queries(cache, head, position_of),
        "clients": {"connected": _at(cache, "sync", "clients"), "pokes": _at(cache, "sync", "pokes")},
    }


def number_of(watermark: object) -> int | None:
    """Return the number of a watermark; None if the value is no watermark."""
    return to_int(watermark)[0] if isinstance(watermark, str) and is_valid(watermark) else None


def origin_of(log: Document | None) -> int | None:
    """Return the number of the newest snapshot's watermark, if there is a snapshot."""
    return number_of(_at(log, "log", "snapshot"))


def _upstream(upstream: UpstreamProgress, log: Document | None) -> dict[str, object]:
    touched, read = upstream["touched"], _at(log, "log", "position", "seq")
    unread = max(0, touched - read) if touched is not None and isinstance(read, int) else None
    return {**upstream, "unread": unread}


def _behind_upstream(log: Document | None, field: str) -> float | str | None:
    """How far the log is behind the upstream, of several the farthest; "unknown" if one does not say it."""
    sources = _at(log, "upstream")
    if not isinstance(sources, Mapping):
        return None
    distances = [_at(each, field) for each in sources.values()]
    known = [each for each in distances if isinstance(each, int | float)]
    return max(known) if known and len(known) == len(distances) else UNKNOWN


def _pipeline(log: Document | None, position_of: _Position) -> dict[str, object]:
    stages = _at(log, "stages")
    reports = sorted(stages.items()) if isinstance(stages, Mapping) else []
    lanes = [_lane(name, report, position_of(report.get("watermark"))) for name, report in reports]
    positions = [position_of(report.get("watermark")) for _, report in reports]
    return {"lanes": lanes, "position": max((each for each in positions if each is not None), default=None)}


def _lane(name: str, report: Document, position: int | None) -> dict[str, object]:
    return {
        "name": name,
        "lane": report.get("lane"),
        "doing": report.get("state"),
        "verdict": report.get("verdict"),
        "position": position,
        "transactions": report.get("transactions"),
        "rows": report.get("rows"),
        "age": report.get("age"),
        "sinceProgress": report.get("sinceProgress"),
    }


def _endpoint(endpoint: Document | None, head: int | None, position_of: _Position) -> dict[str, object]:
    position = _sent(endpoint, position_of)
    return {"streams": len(_streams(endpoint)), "position": position, "behind": _behind(head, position)}


def _sent(endpoint: Document | None, position_of: _Position) -> int | None:
    positions = [position_of(stream["sent"]) for stream in _streams(endpoint)]
    return max((each for each in positions if each is not None), default=None)


def _streams(endpoint: Document | None) -> list[Document]:
    streams = _at(endpoint, "streams")
    return streams if isinstance(streams, list) else []


def _replica(cache: Document | None, head: int | None, position_of: _Position) -> dict[str, object]:
    position = position_of(_at(cache, "replication", "version"))
    return {
        "position": position,
        "behind": _behind(head, position),
        "doing": _at(cache, "replication", "phase"),
        "lagMs": _at(cache, "replication", "lag_ms"),
        "appliedMs": _at(cache, "replication", "applied_time_ms"),
    }


def _queries(cache: Document | None, head: int | None, position_of: _Position) -> dict[str, object]:
    position = position_of(_at(cache, "sync", "version"))
    counts = {name: _at(cache, "sync", name) for name in ("queries", "rows", "advances")}
    return {"position": position, "behind": _behind(head, position), **counts}


def _at(document: object, *path: str) -> object:
    """Return the value at a path of nested objects, None where the path ends early."""
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _behind(head: int | None, position: int | None) -> int | None:
    return max(0, head - position) if head is not None and position is not None else None
