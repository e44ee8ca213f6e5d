"""What endpoints and operators ask of the pipeline: a new snapshot, to forget transactions that no consumer needs, or
to continue without a row or transaction that it cannot pass on.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from changesource_sdk.changelog.coordination.contract import Note, Notes
from changesource_sdk.changelog.dead_letters import Skip, skip_of
from protocol.watermark import EMPTY, is_valid

_SNAPSHOT = "snapshot"
_PRUNE = "prune"
_SKIP = "skip"
MOST_PENDING = 1000
"""Requests to skip something that are pending at a time."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A request for a snapshot with a watermark greater than `above`."""

    above: str
    reason: str


class Requests:
    """The pending requests of one log. Of several for a snapshot the highest watermark is kept, which satisfies all."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def ask_snapshot(self, above: str, reason: str) -> None:
        """Request a snapshot above `above`; the pipeline starts a new generation."""
        note = Note(above if is_valid(above) else EMPTY, reason)
        self._notes.leave("requests", _SNAPSHOT, note, only_higher=True)

    def pending_snapshot(self) -> SnapshotRequest | None:
        """Return the request for a snapshot that was not taken yet; None if there is none."""
        note = self._notes.notes("requests", _SNAPSHOT).get(_SNAPSHOT)
        if note is None:
            return None
        return SnapshotRequest(note.watermark if is_valid(note.watermark) else EMPTY, note.text)

    def withdraw_snapshot(self) -> None:
        """Delete the request for a snapshot."""
        self._notes.remove("requests", _SNAPSHOT)

    def answer_snapshot(self, newest: str) -> None:
        """Withdraw the request if the newest snapshot satisfies it."""
        self._notes.remove("requests", _SNAPSHOT, below=newest)

    def ask_prune(self, below: str) -> None:
        """Request that transactions up to and including `below` be pruned (see `retention.prune_point`)."""
        self._notes.leave("requests", _PRUNE, Note(below))

    def take_prune(self) -> str | None:
        """Delete the request to prune and return its watermark; None if there is no request."""
        note = self._notes.remove("requests", _PRUNE)
        return note.watermark if note is not None and is_valid(note.watermark) else None

    def ask_skip(self, skip: Skip) -> None:
        """Ask that a row or transaction be left out. It is pending until the log has what follows it, or until there
        are `MOST_PENDING` newer ones.
        """
        self._leave_skips([*self.pending_skips(), skip][-MOST_PENDING:])

    def pending_skips(self) -> list[Skip]:
        """What was asked to be left out and is not yet in the log, the oldest first."""
        note = self._notes.notes("requests", _SKIP).get(_SKIP)
        return [skip_of(text) for text in json.loads(note.text)] if note is not None and note.text else []

    def withdraw_skips(self, done: Collection[Skip]) -> None:
        """Forget requests that were carried out, or that name nothing that will come again."""
        names = set(map(_name, done))
        self._leave_skips([each for each in self.pending_skips() if _name(each) not in names])

    def _leave_skips(self, skips: list[Skip]) -> None:
        if skips:
            self._notes.leave("requests", _SKIP, Note(EMPTY, json.dumps([skip.to_text() for skip in skips])))
        else:
            self._notes.remove("requests", _SKIP)


def _name(skip: Skip) -> tuple[str, ...]:
    """What a request is about. A row is named without its transaction, which may have another position when it is tried
    again.
    """
    return (skip.source, skip.table, skip.key) if skip.table else (skip.source, skip.position)
