"""What the endpoint asks of the pipeline: a new snapshot, above a watermark, for a reason.

A request is one small file. Asking again while one is pending keeps the higher watermark, so it can be asked for by
every consumer that needs it and is answered by one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.changelog.atomic_json import read_json, write_json
from changesource_sdk.changelog.layout import StateDirectory
from changesource_sdk.changelog.log import EMPTY
from protocol.watermark import is_valid

_FILE = "snapshot.json"
_PRUNE = "prune.json"


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A snapshot with a watermark greater than `above` is wanted."""

    above: str
    reason: str


def request_snapshot(state_directory: Path, above: str, reason: str) -> None:
    """Ask for a snapshot above `above`; the pipeline answers with a new generation."""
    pending = pending_request(state_directory)
    wanted = above if is_valid(above) else EMPTY
    if pending is None or pending.above < wanted:
        path = StateDirectory(state_directory).requests / _FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"above": wanted, "reason": reason})


def pending_request(state_directory: Path) -> SnapshotRequest | None:
    """What is asked for and not yet answered."""
    found = read_json(StateDirectory(state_directory).requests / _FILE)
    if found is None:
        return None
    above = str(found.get("above", EMPTY))
    return SnapshotRequest(above if is_valid(above) else EMPTY, str(found.get("reason", "")))


def answer_request(state_directory: Path, newest_snapshot: str) -> None:
    """Withdraw the request if the newest snapshot satisfies it."""
    pending = pending_request(state_directory)
    if pending is not None and newest_snapshot > pending.above:
        (StateDirectory(state_directory).requests / _FILE).unlink(missing_ok=True)


def request_prune(state_directory: Path, below: str) -> None:
    """Ask that transactions up to and including `below` be forgotten (see `retention.prune_point`)."""
    path = StateDirectory(state_directory).requests / _PRUNE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"below": below})


def take_prune(state_directory: Path) -> str | None:
    """The watermark to prune to, once; None if nobody asked."""
    path = StateDirectory(state_directory).requests / _PRUNE
    found = read_json(path)
    if found is None:
        return None
    path.unlink(missing_ok=True)
    below = str(found.get("below", EMPTY))
    return below if is_valid(below) else None
