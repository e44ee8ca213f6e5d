"""Where the processes that take a snapshot put its parts.

A part is written in a scratch folder of its own attempt and put into the snapshot's folder when it is whole, with a
note that describes it: a writer that is killed, retried or started twice leaves one part, and the process that resumes
the snapshot sees what is finished. The folder is one that all writers see, or one of a spool that hosts share by URI:
then writers need nothing of one another's disks.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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
    """The parts of one snapshot under way; picklable. `directory` is their folder if it is on this host's disk."""

    spool: Spool
    folder: str
    directory: Path | None = None

    @classmethod
    def local(cls, directory: Path) -> PartStore:
        """Parts in a folder that every writer sees under the same path."""
        return cls(DirectorySpool(directory.parent), directory.name, directory)

    @property
    def poll_every_s(self) -> float:
        """How often it is reasonable to list what is finished: other hosts' files cost a request each."""
        return 0.25 if self.directory is not None else 5.0

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for one attempt, deleted afterwards; on the disk of the parts, if that is local, so that `put` is a
        rename.
        """
        if self.directory is None:
            with tempfile.TemporaryDirectory(prefix="changesource-part-") as own:
                yield Path(own)
            return
        # Not named by the part: an earlier driver may not know yet that it was replaced, and write the same one.
        attempt = self.directory / f"{_ATTEMPTS}{secrets.token_hex(8)}"
        with disk_errors(attempt):
            new_folder(attempt)
        try:
            yield attempt
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    def put(self, file: Path, part: PartInfo) -> None:
        """Store a part that is whole, then its note. Doing it again replaces both."""
        self.spool.put(self.folder, part.file, file)
        note = file.with_name(_note_name(part.file))
        with disk_errors(note):
            write_json(note, asdict(part))
        self.spool.put(self.folder, note.name, note)

    def finished(self) -> dict[str, PartInfo]:
        """The parts that have a note and a file of their full size, by file name."""
        files = self.spool.list(self.folder)
        described = filter(None, (self._read_note(name) for name in files if _is_note(name)))
        return {part.file: part for part in described if files.get(part.file, -1) >= part.bytes}

    def _read_note(self, name: str) -> PartInfo | None:
        try:
            with self.spool.open(self.folder, name) as content:
                described = parsed_json(content.read())
        except SnapshotGone:
            return None
        return None if described is None else PartInfo(**described)  # type: ignore[arg-type]

    def count_file(self, number: int) -> Path | None:
        """Where the writer of a part may count rows on the way; None if they are known at the end only."""
        return None if self.directory is None else self.directory / f"{_COUNTS}{number}"

    def rows_counted(self) -> int:
        """The rows written so far, as far as they are known."""
        if self.directory is None:
            return sum(part.rows for part in self.finished().values())
        return sum(_number(path) for path in self.directory.glob(f"{_COUNTS}*"))

    def tidy(self) -> None:
        """Delete what only the writing needed: counts, and folders of attempts that were killed. Those of other hosts
        are temporary files there.
        """
        if self.directory is None:
            return
        for leftover in self.directory.glob(f"{_ATTEMPTS}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for count in self.directory.glob(f"{_COUNTS}*"):
            count.unlink()

    def remove_notes(self) -> None:
        """Delete the notes, once all parts are there."""
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
