"""Decides what to do with a consumer, from its handshake, what the log retains, and our record of the consumer. Pure.

A consumer without data gets an initial sync. One with data may resume if its replica comes from an initial sync of this
generation that was issued to its app and shard, and its last watermark is one that this log committed and still
retains. Everything else is a gap, which is closed by a reset, never by guessing.

A consumer's claim never changes our own watermarks: a reset concerns that consumer only. A new snapshot is requested
only if our own record proves that the log has lost what was sent before (`ConsumerRecord.held`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from changesource_sdk.changelog.coordination.consumers import is_beyond
from protocol.stream.handshake import Handshake
from protocol.watermark import EMPTY


@dataclass(frozen=True, slots=True)
class Retained:
    """What the log retains of its current generation. Invariant: snapshots ascend, and oldest <= head."""

    generation: int
    snapshots: tuple[str, ...]
    oldest: str
    head: str


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """What we know of a consumer.

    `versions` were issued to its app and shard; `held` is the highest watermark that was sent to them; `is_known` says
    whether the log has a transaction with the consumer's last watermark.
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
    """Wait for a snapshot, silently. `above` is set if it must be requested first."""

    reason: str
    above: str | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Send every transaction after this watermark."""

    after: str


@dataclass(frozen=True, slots=True)
class Reset:
    """Send `reset-required`; `above` is set if a new snapshot must be requested first."""

    code: str
    message: str
    above: str | None


Plan: TypeAlias = Initial | Await | Resume | Reset


def decide(
    handshake: Handshake, retained: Retained | None, requested_above: str | None, record: ConsumerRecord
) -> Plan:
    """The plan for a handshake. `requested_above` is the watermark that a requested, pending snapshot must exceed."""
    newest = retained.snapshots[-1] if retained and retained.snapshots else None
    lost = record.held if retained is not None and is_beyond(record.held, retained.head) else None
    if handshake.last_watermark is None:
        if newest is None:
            return Await("the first snapshot is being taken")
        if lost is not None:
            return Await(f"this log has lost {lost}, which was sent before; a new snapshot is needed", above=lost)
        if requested_above is not None and newest <= requested_above:
            return Await(f"a snapshot above {requested_above} was requested")
        return Initial(newest)
    gap = _gap(handshake.last_watermark, handshake.replica_version, retained, record)
    if gap is None:
        return Resume(handshake.last_watermark)
    return Reset(*gap, above=lost)


def _gap(last: str, version: str | None, retained: Retained | None, record: ConsumerRecord) -> tuple[str, str] | None:
    """Why the log cannot resume from here, as a stable code and a sentence; None if it can."""
    if retained is None or not retained.snapshots:
        return "no-log", f"the change log is new and has no watermark {last}"
    versions = {each for each in record.versions if each >= retained.snapshots[0]} | set(retained.snapshots)
    if version is not None and version not in versions:
        return "unknown-replica", f"replicaVersion {version} is no initial sync of the current generation"
    if last > retained.head and last not in versions:
        return "ahead", f"lastWatermark {last} is newer than the change log's head {retained.head}"
    if last < retained.oldest:
        return "too-old", f"lastWatermark {last} is older than the change log, which begins at {retained.oldest}"
    if version is not None and last < version:
        return "before-replica", f"lastWatermark {last} is older than replicaVersion {version}"
    if not (record.is_known or last == retained.oldest or last in versions):
        return "unknown-watermark", f"no transaction of the change log has lastWatermark {last}"
    return None
