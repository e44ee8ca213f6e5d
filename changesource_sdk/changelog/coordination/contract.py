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
LockName = Literal["pipeline", "compaction", "seed"]


class Note(NamedTuple):
    """A small text that one process leaves for another; the watermark orders notes of the same name."""

    watermark: str
    text: str = ""


class Notes(Protocol):
    """At most one note per kind and name, each whole or absent. Threads and processes share them."""

    def leave(self, kind: NoteKind, name: str, note: Note, *, only_higher: bool = False) -> None:
        """Replace a note; with `only_higher`, only one with a lower watermark. Atomic where hosts share the notes."""

    def notes(self, kind: NoteKind, name: str | None = None) -> dict[str, Note]:
        """Return the notes of a kind by name; with `name`, that one only."""

    def remove(self, kind: NoteKind, name: str, *, below: str | None = None) -> Note | None:
        """Remove a note and return it; of several processes that call this, one gets it. None if there is no such note,
        or with `below`, if its watermark is not lower.
        """


class Coordination(Notes, Protocol):
    """The side channel of one log. Nothing is opened before the first call. Threads may share it."""

    def issue(self, app_id: str, shard: int, head: str, held: str, now_ms: float) -> str:
        """Issue a new replica version (`consumers.next_version`) for an initial sync that shows the log at `head`.

        The transactions after `held` are not pruned until the consumer acknowledges more. The version is durable when
        this returns; concurrent calls, also of other hosts, never get the same one.
        """

    def acknowledge(self, key: ConsumerKey, watermark: str, now_ms: float) -> None:
        """Note that a consumer has stored everything up to and including `watermark`, at `now_ms` (epoch milliseconds).

        A watermark that is lower than before only renews the time.
        """

    def consumers(self, app_id: str | None = None, shard: int | None = None) -> list[Consumer]:
        """Return all consumers, or those of one app and shard, in key order."""

    def forget(self, key: ConsumerKey) -> None:
        """Delete a consumer: nothing is kept for it any more."""

    def lock(self, name: LockName) -> AbstractContextManager[None]:
        """Hold a lock of this log inside the block; raises `StateError` if another process has it.

        It is released when the process ends, however that happens.
        """

    def listen(self) -> WakeupListener:
        """Return a listener that is woken when the log has something new to read; the caller closes it."""

    def close(self) -> None:
        """Release connections and files; listeners have their own `close`."""
