"""What to do with a consumer, decided from its request, from what is retained, and from our own record of it. Pure.

A consumer that has nothing gets an initial sync. One that has something may resume if its replica stems from an initial
sync of this generation that was issued to its app and shard, and its last watermark is one that this log committed and
still reaches back to. Everything else is a gap, and a gap is closed by a reset, never by guessing.

What a consumer claims never moves our own watermarks: a reset concerns that consumer alone. Only if our own record
proves that the log has lost what was sent before (`Standing.held`) is a new snapshot asked for, above that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from changesource_sdk.changelog.log import EMPTY
from changesource_sdk.changelog.subscribers import is_beyond
from protocol.handshake import Handshake


@dataclass(frozen=True, slots=True)
class Retained:
    """What the log holds of its current generation. Invariant: snapshots ascend, and oldest <= head."""

    generation: int
    snapshots: tuple[str, ...]
    oldest: str
    head: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What our records say of the consumer that asks.

    `versions` were issued to its app and shard; `held` is the highest watermark that app and shard is known to have
    been sent; `is_known` says whether the log has a transaction with the consumer's last watermark.
    """

    versions: frozenset[str] = frozenset()
    held: str = EMPTY
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class Initial:
    """Send an initial sync, made of the snapshot at this watermark and the log after it."""

    snapshot: str


@dataclass(frozen=True, slots=True)
class Await:
    """A snapshot will come; say nothing until it is there. `above` is set if it must be asked for first."""

    reason: str
    above: str | None = None


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


def decide(handshake: Handshake, retained: Retained | None, asked_above: str | None, standing: Standing) -> Plan:
    """The plan for a request. `asked_above` is the watermark a requested, not yet taken, snapshot must exceed."""
    newest = retained.snapshots[-1] if retained and retained.snapshots else None
    lost = standing.held if retained is not None and is_beyond(standing.held, retained.head) else None
    if handshake.last_watermark is None:
        if newest is None:
            return Await("the first snapshot is being taken")
        if lost is not None:
            return Await(f"this log has lost {lost}, which was sent before; a new snapshot is needed", above=lost)
        if asked_above is not None and newest <= asked_above:
            return Await(f"a snapshot above {asked_above} was asked for")
        return Initial(newest)
    gap = _gap(handshake.last_watermark, handshake.replica_version, retained, standing)
    if gap is None:
        return Resume(handshake.last_watermark)
    return Reset(*gap, above=lost)


def _gap(last: str, version: str | None, retained: Retained | None, standing: Standing) -> tuple[str, str] | None:
    """Why the log cannot continue from here, as a stable code and a sentence; None if it can."""
    if retained is None or not retained.snapshots:
        return "no-log", f"the change log is new and knows nothing of watermark {last}"
    versions = {each for each in standing.versions if each >= retained.snapshots[0]} | set(retained.snapshots)
    if version is not None and version not in versions:
        return "unknown-replica", f"replicaVersion {version} is no initial sync of the current generation"
    if last > retained.head and last not in versions:
        return "ahead", f"lastWatermark {last} is newer than the change log's head {retained.head}"
    if last < retained.oldest:
        return "too-old", f"lastWatermark {last} is older than the change log, which begins at {retained.oldest}"
    if version is not None and last < version:
        return "before-replica", f"lastWatermark {last} is older than replicaVersion {version}"
    if not (standing.is_known or last == retained.oldest or last in versions):
        return "unknown-watermark", f"no transaction of the change log has lastWatermark {last}"
    return None
