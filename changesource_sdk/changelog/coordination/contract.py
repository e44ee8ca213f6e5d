"""How the processes of one log communicate: notes, acknowledgements of consumers, locks and wake-ups.

A backend implements `Coordination`. What the notes mean is written once over it: requests for the pipeline
(`requests`), reports of its stages (`reports`) and compacted snapshots for the writer (`handoff`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

from changesource_sdk.changelog.coordination.consumers import Consumer, ConsumerKey
from changesource_sdk.changelog.coordination.wakeup import WakeupListener

NoteKind = Literal["requests", "reports"]
LockName = Literal["pipeline", "compaction"]


class Note(NamedTuple):
    """A small text that one process leaves for another; the watermark orders notes of the same name."""

    watermark: str
    text: str = ""


class Notes(Protocol):
    """At most one note per kind and name, each whole or absent. Threads and processes share them."""

    def leave(self, kind: NoteKind, name: str, note: Note, *, only_higher: bool = False) -> None:
        """Replace a note; with `only_higher`, one whose watermark is not lower stays. Atomic where hosts share it."""

    def notes(self, kind: NoteKind, name: str | None = None) -> dict[str, Note]:
        """The notes of a kind by name; only the one of this name if there is one given."""

    def remove(self, kind: NoteKind, name: str, *, below: str | None = None) -> Note | None:
        """Remove a note and return it, so that one process gets it; with `below`, only if its watermark is lower."""


class Coordination(Notes, Protocol):
    """The side channel of one log. Nothing is opened before the first call. Threads may share it."""

    def issue(self, app_id: str, shard: int, head: str, held: str, now_ms: float) -> str:
        """A new replica version (`consumers.next_version`) for an initial sync that shows the log at `head`. The log
        is kept from `held` on until the consumer acknowledges more. Durable when it returns; concurrent calls, also of
        other hosts, never get the same version.
        """

    def acknowledge(self, key: ConsumerKey, watermark: str, now_ms: float) -> None:
        """The consumer has everything up to and including `watermark`. A lower one than before counts as heard of."""

    def consumers(self, app_id: str | None = None, shard: int | None = None) -> list[Consumer]:
        """The consumers known, of one app and shard if both are given, in key order."""

    def forget(self, key: ConsumerKey) -> None:
        """Delete a consumer: nothing is kept for it any more."""

    def lock(self, name: LockName) -> AbstractContextManager[None]:
        """Hold a lock of this log while inside; `StateError` if another process has it. It ends with the process."""

    def listen(self) -> WakeupListener:
        """A listener that is woken when the log has something new to read."""

    def close(self) -> None:
        """Release connections and files; listeners have their own `close`."""
