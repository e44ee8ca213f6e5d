"""What to do with a consumer, decided from its request and from what is retained. Pure.

A consumer that has nothing gets a snapshot. One that has something may go on if its replica stems from a snapshot of
the current generation and its watermark lies within the retained log; everything else is a gap, and a gap is closed
by a reset, never by guessing. A reset must lead to a snapshot above everything that consumer saw, so the decision
says which watermark the next snapshot has to exceed when no retained one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from protocol.handshake import Handshake


@dataclass(frozen=True, slots=True)
class Retained:
    """What the log holds of its current generation. Invariant: snapshots ascend, and oldest <= head."""

    generation: int
    snapshots: tuple[str, ...]
    oldest: str
    head: str


@dataclass(frozen=True, slots=True)
class Initial:
    """Send the snapshot taken at this watermark."""

    snapshot: str


@dataclass(frozen=True, slots=True)
class Await:
    """A snapshot will come; say nothing until it is there."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Send every transaction after this watermark."""

    after: str


@dataclass(frozen=True, slots=True)
class Reset:
    """Tell the consumer to start over; `above` is set if a new snapshot must be asked for first."""

    code: str
    message: str
    above: str | None


Plan: TypeAlias = Initial | Await | Resume | Reset


def decide(handshake: Handshake, retained: Retained | None, asked_above: str | None) -> Plan:
    """The plan for a request. `asked_above` is the watermark a requested, not yet taken, snapshot must exceed."""
    newest = retained.snapshots[-1] if retained and retained.snapshots else None
    if handshake.last_watermark is None:
        if newest is None:
            return Await("the first snapshot is being taken")
        if asked_above is not None and newest <= asked_above:
            return Await(f"a snapshot above {asked_above} was asked for")
        return Initial(newest)
    gap = _gap(handshake.last_watermark, handshake.replica_version, retained)
    if gap is None:
        return Resume(handshake.last_watermark)
    seen = max(handshake.last_watermark, handshake.replica_version or "")
    return Reset(*gap, above=seen if newest is None or newest <= seen else None)


def _gap(last: str, version: str | None, retained: Retained | None) -> tuple[str, str] | None:
    """Why the log cannot continue from here, as a stable code and a sentence; None if it can."""
    if retained is None or not retained.snapshots:
        return "no-log", f"the change log is new and knows nothing of watermark {last}"
    if version is not None and version not in retained.snapshots:
        return "unknown-replica", f"replicaVersion {version} is no snapshot of the current generation"
    if last > retained.head:
        return "ahead", f"lastWatermark {last} is newer than the change log's head {retained.head}"
    if last < retained.oldest:
        return "too-old", f"lastWatermark {last} is older than the change log, which begins at {retained.oldest}"
    if version is not None and last < version:
        return "before-replica", f"lastWatermark {last} is older than replicaVersion {version}"
    return None
