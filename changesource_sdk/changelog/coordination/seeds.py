"""The record of seeds: replica files that were built from a log, and what of the log is kept for them.

A cache that starts from a seed asks for everything after the seed's watermark, so the log is not pruned beyond it while
the seed can be fetched. A replica file gets a replica version of its own (`claim`): zero-cache does not notice what a
second copy with the same version lacks. The record is one note, so every host of the log sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal

from changesource_sdk.changelog.coordination.consumers import is_beyond
from changesource_sdk.changelog.coordination.contract import Coordination, Note, Notes
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.reading import has
from changesource_sdk.errors import StateError

_SEEDS = "seeds"
NOT_COVERED = "seed-not-covered"
FIX = "make a new seed with `changesource seed`, or remove the file so that zero-cache makes its own initial sync"


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """One seed. `watermark` is the log's head that it shows; the transactions after `held` are not pruned.

    `version` is the version of its rows. `target` is the file or URI, without secrets.
    """

    version: str
    app_id: str
    shard: int
    release: str
    watermark: str
    held: str
    created_ms: float
    target: str
    state: Literal["building", "ready"] = "building"
    rows: int = 0
    bytes: int = 0


class Seeds:
    """The seeds of one log, oldest first. Writers hold the lock `seed`."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def all(self) -> list[SeedRecord]:
        """Return the recorded seeds; those that this release cannot read are left out."""
        note = self._notes.notes("requests", _SEEDS).get(_SEEDS)
        if note is None:
            return []
        try:
            return sorted((SeedRecord(**each) for each in json.loads(note.text)), key=lambda each: each.version)
        except (ValueError, TypeError):
            return []

    def put(self, record: SeedRecord) -> None:
        """Add a seed, or replace the one of its version."""
        self._write([*(each for each in self.all() if each.version != record.version), record])

    def remove(self, *versions: str) -> None:
        """Forget seeds: nothing of the log is kept for them any more."""
        self._write([each for each in self.all() if each.version not in versions])

    def _write(self, records: list[SeedRecord]) -> None:
        text = json.dumps([asdict(each) for each in records])
        self._notes.leave("requests", _SEEDS, Note(max((each.version for each in records), default=""), text))


def ready(record: SeedRecord, rows: int, size: int) -> SeedRecord:
    """Return the record of a seed that is complete: only what follows its watermark is kept for it."""
    return replace(record, state="ready", held=record.watermark, rows=rows, bytes=size)


def needed_by(seeds: Iterable[SeedRecord], now_ms: float, live_within_ms: float) -> list[str]:
    """Return the watermarks after which the log is kept; a seed counts for as long as an absent consumer would."""
    return [each.held for each in seeds if now_ms - each.created_ms <= live_within_ms]


def uncovered(log: Log, watermark: str) -> str | None:
    """Say why a log cannot continue a replica that shows it at this watermark; None if it can. Blocking."""
    state, known = log.state(), [each.watermark for each in log.snapshots()]
    if not known:
        return "the change log is new"
    if watermark < known[0]:
        return f"the change log started over at {known[0]}"
    if is_beyond(watermark, state.head):
        return f"the change log ends at {state.head} and has lost what the seed shows"
    if watermark < state.oldest:
        return f"the change log now begins at {state.oldest}"
    if not (watermark == state.oldest or watermark in known or has(log, watermark)):
        return "no transaction of the change log has its watermark"
    return None


def check_covered(log: Log, watermark: str) -> None:
    """Raise `StateError` with the code `NOT_COVERED` if the log cannot continue a seed at this watermark. Blocking."""
    reason = uncovered(log, watermark)
    if reason is not None:
        raise StateError(NOT_COVERED, f"the seed is at {watermark}, but {reason}", "the seed", FIX)


def claim(log: Log, coordination: Coordination, app_id: str, shard: int, watermark: str, now_ms: float) -> str:
    """Issue the replica version of one copy of a seed, and keep the log for it. Raises `StateError`. Blocking."""
    # Issued first: from here on nobody requests pruning of what follows the watermark. A request from before, for a
    # seed that is no longer recorded, still ends in a reset of the consumer and not in missing rows.
    version = coordination.issue(app_id, shard, watermark, held=watermark, now_ms=now_ms)
    check_covered(log, watermark)
    return version
