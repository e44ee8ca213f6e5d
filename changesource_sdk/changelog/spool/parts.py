"""The store into which the processes that take a snapshot put its parts.

Each attempt writes a part in its own scratch folder and moves it to the snapshot's folder when it is complete, together
with a note that describes it. So a writer that is killed, retried or started twice leaves one part, and the process
that resumes the snapshot sees which parts are finished. The folder is in a directory of all writers, or in a remote
spool; then writers share no disk.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.changelog.files.atomic_json import parsed_json, write_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.spool.directory import DirectorySpool
from changesource_sdk.changelog.spool.snapshots import PartInfo
from changesource_sdk.changelog.spool.spool import Spool
from changesource_sdk.errors import SnapshotGone
from service_kit.private_files import new_folder

_COUNTS = "rows-"
_ATTEMPTS = "attempt-"


@dataclass(frozen=True, slots=True)
class PartStore:
    """The parts of a snapshot that is being taken; picklable. `directory` is their folder, None in a remote spool."""

    spool: Spool
    folder: str
    directory: Path | None = None

    @classmethod
    def local(cls, directory: Path) -> PartStore:
        """Make a store in a directory that every writer has under the same path."""
        return cls(DirectorySpool(directory.parent), directory.name, directory)

    @property
    def poll_every_s(self) -> float:
        """Seconds between two listings of what is finished; longer for a remote spool, where each file is a request."""
        return 0.25 if self.directory is not None else 5.0

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a folder for one attempt, and delete it after the block. In a directory it is on the disk of the parts,
        so that `put` can rename.
        """
        if self.directory is None:
            with tempfile.TemporaryDirectory(prefix="changesource-part-") as own:
                yield Path(own)
            return
        # A random name, not the part's: an earlier driver that does not know yet that it was replaced may write the
        # same part.
        attempt = self.directory / f"{_ATTEMPTS}{secrets.token_hex(8)}"
        with disk_errors(attempt):
            new_folder(attempt)
        try:
            yield attempt
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    def put(self, file: Path, part: PartInfo) -> None:
        """Store a complete part, then its note. May be repeated: both are replaced."""
        self.spool.put(self.folder, part.file, file)
        note = file.with_name(_note_name(part.file))
        with disk_errors(note):
            write_json(note, part.as_json())
        self.spool.put(self.folder, note.name, note)

    def finished(self) -> dict[str, PartInfo]:
        """Return the parts that have a note and a file of their full size, by file name."""
        files = self.spool.list(self.folder)
        described = filter(None, (self._read_note(name) for name in files if _is_note(name)))
        return {part.file: part for part in described if files.get(part.file, -1) >= part.bytes}

    def _read_note(self, name: str) -> PartInfo | None:
        try:
            with self.spool.open(self.folder, name) as content:
                described = parsed_json(content.read())
        except SnapshotGone:
            return None
        if described is None:
            return None
        letters = described.pop("letters", ())
        return PartInfo(**described, letters=tuple(letters))  # type: ignore[arg-type]

    def count_file(self, number: int) -> Path | None:
        """Return the file for the row count of an unfinished part; None if only finished parts are counted."""
        return None if self.directory is None else self.directory / f"{_COUNTS}{number}"

    def rows_counted(self) -> int:
        """Return the rows written so far; for a remote spool, those of finished parts."""
        if self.directory is None:
            return sum(part.rows for part in self.finished().values())
        return sum(_number(path) for path in self.directory.glob(f"{_COUNTS}*"))

    def tidy(self) -> None:
        """Delete row counts and the folders of attempts that were killed. With a remote spool there are none here."""
        if self.directory is None:
            return
        for leftover in self.directory.glob(f"{_ATTEMPTS}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for count in self.directory.glob(f"{_COUNTS}*"):
            count.unlink()

    def remove_notes(self) -> None:
        """Delete the notes; called when all parts are finished."""
        for name in self.spool.list(self.folder):
            if _is_note(name):
                self.spool.delete(self.folder, name)


def _note_name(file: str) -> str:
    return str(Path(file).with_suffix(".json"))


def _is_note(name: str) -> bool:
    return name.startswith("part-") and name.endswith(".json")


def _number(path: Path) -> int:
    try:
        return int(path.read_text() or "0")
    except (OSError, ValueError):
        return 0
