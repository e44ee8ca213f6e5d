"""What endpoints ask of the pipeline, as one small file per request in the state directory."""

from __future__ import annotations

from pathlib import Path

from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.store import SnapshotRequest
from changesource_sdk.errors import StateError
from protocol.watermark import EMPTY, is_valid

_SNAPSHOT = "snapshot.json"
_PRUNE = "prune.json"


class FileRequests:
    """`Requests` as files. Invariant: a request is whole or absent, whoever is killed while writing it."""

    def __init__(self, state_directory: Path) -> None:
        self._folder = StateDirectory(state_directory).requests

    def ask_snapshot(self, above: str, reason: str) -> None:
        """Ask for a snapshot above `above`; the pipeline answers with a new generation."""
        pending = self.pending_snapshot()
        wanted = above if is_valid(above) else EMPTY
        if pending is None or pending.above < wanted:
            self._write(_SNAPSHOT, {"above": wanted, "reason": reason})

    def pending_snapshot(self) -> SnapshotRequest | None:
        """What is asked for and not yet answered."""
        found = read_json(self._folder / _SNAPSHOT)
        if found is None:
            return None
        above = str(found.get("above", EMPTY))
        return SnapshotRequest(above if is_valid(above) else EMPTY, str(found.get("reason", "")))

    def withdraw_snapshot(self) -> None:
        """Forget what is asked for."""
        (self._folder / _SNAPSHOT).unlink(missing_ok=True)

    def answer_snapshot(self, newest: str) -> None:
        """Withdraw the request if the newest snapshot satisfies it."""
        pending = self.pending_snapshot()
        if pending is not None and newest > pending.above:
            (self._folder / _SNAPSHOT).unlink(missing_ok=True)

    def ask_prune(self, below: str) -> None:
        """Ask that transactions up to and including `below` be forgotten."""
        self._write(_PRUNE, {"below": below})

    def take_prune(self) -> str | None:
        """The watermark to prune to, once; None if nobody asked."""
        path = self._folder / _PRUNE
        found = read_json(path)
        if found is None:
            return None
        path.unlink(missing_ok=True)
        below = str(found.get("below", EMPTY))
        return below if is_valid(below) else None

    def _write(self, name: str, value: dict[str, str]) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_json(self._folder / name, value)
        except OSError as error:
            raise StateError(
                "request-not-written",
                f"cannot leave a request for the pipeline: {error.strerror or error}",
                str(self._folder),
                "make room there, or make it writable",
            ) from error
