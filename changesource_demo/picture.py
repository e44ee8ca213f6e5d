"""How far every stage is, in one unit, for the page to draw. Pure.

Positions are transactions of the log since `origin`, its first snapshot, so that any two stages can be compared; the
store counts the keys that were touched, and is compared with what the pipeline has read of them. What is not known,
because whoever knows it does not run, is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from protocol.watermark import is_valid, to_int

Document = Mapping[str, Any]
_Position = Callable[[object], int | None]


def draw(
    store: Document, log: Document | None, endpoint: Document | None, cache: Document | None, origin: int
) -> dict[str, Any]:
    """The picture, from what the store, the log's files, the endpoint and the cache say of themselves."""

    def at(watermark: object) -> int | None:
        number = number_of(watermark)
        return None if number is None else max(0, number - origin)

    # The endpoint was asked a moment after the log was read, so it may already be further.
    known = (at(_at(log, "log", "head")), _sent(endpoint, at))
    head = max((each for each in known if each is not None), default=None)
    return {
        "store": _store(store, log),
        "pipeline": _pipeline(log, at),
        "log": {"position": head, "snapshotAge": _at(log, "log", "snapshotAge")},
        "endpoint": _endpoint(endpoint, head, at),
        "replica": _replica(cache, head, at),
        "queries": _queries(cache, head, at),
        "clients": {"connected": _at(cache, "sync", "clients"), "pokes": _at(cache, "sync", "pokes")},
    }


def number_of(watermark: object) -> int | None:
    """The number a watermark stands for; None if it is none."""
    return to_int(watermark)[0] if isinstance(watermark, str) and is_valid(watermark) else None


def origin_of(log: Document | None) -> int | None:
    """Where the log's newest snapshot is, if there is one."""
    return number_of(_at(log, "log", "snapshot"))


def _store(store: Document, log: Document | None) -> dict[str, Any]:
    touched, read = store["touched"], _at(log, "log", "position", "seq")
    unread = max(0, touched - read) if touched is not None and read is not None else None
    return {**store, "unread": unread}


def _pipeline(log: Document | None, at: _Position) -> dict[str, Any]:
    stages: Mapping[str, Document] = _at(log, "stages") or {}
    lanes = [
        {
            "name": name,
            "lane": stage.get("lane"),
            "doing": stage.get("state"),
            "verdict": stage.get("verdict"),
            "position": at(stage.get("watermark")),
            "transactions": stage.get("transactions"),
            "rows": stage.get("rows"),
            "age": stage.get("age"),
            "sinceProgress": stage.get("sinceProgress"),
        }
        for name, stage in sorted(stages.items())
    ]
    positions = [lane["position"] for lane in lanes if lane["position"] is not None]
    return {"lanes": lanes, "position": max(positions, default=None)}


def _endpoint(endpoint: Document | None, head: int | None, at: _Position) -> dict[str, Any]:
    position = _sent(endpoint, at)
    return {
        "streams": len(_at(endpoint, "streams") or []),
        "position": position,
        "behind": _behind(head, position),
    }


def _sent(endpoint: Document | None, at: _Position) -> int | None:
    sent = [at(stream["sent"]) for stream in _at(endpoint, "streams") or []]
    return max((each for each in sent if each is not None), default=None)


def _replica(cache: Document | None, head: int | None, at: _Position) -> dict[str, Any]:
    position = at(_at(cache, "replication", "version"))
    return {
        "position": position,
        "behind": _behind(head, position),
        "doing": _at(cache, "replication", "phase"),
        "lagMs": _at(cache, "replication", "lag_ms"),
        "appliedMs": _at(cache, "replication", "applied_time_ms"),
    }


def _queries(cache: Document | None, head: int | None, at: _Position) -> dict[str, Any]:
    position = at(_at(cache, "sync", "version"))
    counts = {name: _at(cache, "sync", name) for name in ("queries", "rows", "advances")}
    return {"position": position, "behind": _behind(head, position), **counts}


def _at(document: Any, *path: str) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _behind(head: int | None, position: int | None) -> int | None:
    return max(0, head - position) if head is not None and position is not None else None
