"""Where the parts of a snapshot under way are put, by whichever processes write them.

A part is written in a scratch folder of its own attempt and put in its place when it is whole, with a note beside it
that says what is in it: a writer that is killed, retried or doubled leaves one part, and whoever goes on with the
snapshot finds what is finished. The place is a folder that all writers see, or the spool that hosts share by URI:
then writers need nothing of one another's disks.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.spool.snapshots import PartInfo
from service_kit.private_files import new_folder

_COUNTS = "rows-"
_ATTEMPTS = "attempt-"


class PartPlace(Protocol):
    """The place of one snapshot's parts; picklable."""

    @property
    def look_every_s(self) -> float:
        """How often it is reasonable to look at what is finished."""

    def scratch(self) -> AbstractContextManager[Path]:
        """A folder for one attempt, gone afterwards."""

    def put(self, file: Path, part: PartInfo) -> None:
        """A part is whole: put it in its place, and note it. Doing it again replaces it."""

    def finished(self) -> dict[str, PartInfo]:
        """The noted parts whose files are there, by file name."""

    def count_file(self, number: int) -> Path | None:
        """Where the writer of a part may count rows on the way; None if it can only tell at the end."""

    def rows_counted(self) -> int:
        """The rows in all count files."""

    def tidy(self) -> None:
        """Remove what only the writing needed: counts, and folders of attempts that were killed."""

    def remove_notes(self) -> None:
        """All parts are there: the notes have done their work."""


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A folder that every writer sees under the same path."""

    directory: Path
    look_every_s: float = 0.25

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for one attempt, beside the parts, so that putting is renaming."""
        # Also of its own beside a zombie's: an earlier driver may not know yet that it was replaced.
        own = self.directory / f"{_ATTEMPTS}{secrets.token_hex(8)}"
        with disk_errors(own):
            new_folder(own)
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def put(self, file: Path, part: PartInfo) -> None:
        """Rename, then note."""
        with disk_errors(self.directory):
            file.rename(self.directory / part.file)
            write_json(_note(self.directory, part.file), asdict(part))

    def finished(self) -> dict[str, PartInfo]:
        """The noted parts whose files are there."""
        found: dict[str, PartInfo] = {}
        for path in self.directory.glob("part-*.json"):
            content = read_json(path)
            if content is None:
                continue
            part = PartInfo(**content)  # type: ignore[arg-type]
            file = self.directory / part.file
            if file.exists() and file.stat().st_size >= part.bytes:
                found[part.file] = part
        return found

    def count_file(self, number: int) -> Path:
        """Beside the parts."""
        return self.directory / f"{_COUNTS}{number}"

    def rows_counted(self) -> int:
        """The rows in all count files."""
        return sum(_number(path) for path in self.directory.glob(f"{_COUNTS}*"))

    def tidy(self) -> None:
        """Remove counts and the folders of attempts."""
        for leftover in self.directory.glob(f"{_ATTEMPTS}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for count in self.directory.glob(f"{_COUNTS}*"):
            count.unlink()

    def remove_notes(self) -> None:
        """The notes have done their work."""
        for path in self.directory.glob("part-*.json"):
            path.unlink()


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """The snapshot's folder in a spool that hosts share by URI; scratch folders are each writer's own."""

    remote: RemoteSpool
    watermark: str
    look_every_s: float = 5.0

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary folder of this host."""
        with tempfile.TemporaryDirectory(prefix="changesource-part-") as own:
            yield Path(own)

    def put(self, file: Path, part: PartInfo) -> None:
        """Copy there, then note."""
        self.remote.put(self.watermark, file, part.file)
        note = _note(file.parent, part.file)
        write_json(note, asdict(part))
        self.remote.put(self.watermark, note, note.name)

    def finished(self) -> dict[str, PartInfo]:
        """The noted parts whose files are there."""
        notes = self.remote.notes(self.watermark)
        parts = [PartInfo(**note) for note in notes]  # type: ignore[arg-type]
        sizes = self.remote.sizes(self.watermark, [part.file for part in parts])
        return {part.file: part for part, size in zip(parts, sizes, strict=True) if size >= part.bytes}

    def count_file(self, number: int) -> None:
        """Rows are told with their part."""
        return

    def rows_counted(self) -> int:
        """The rows of finished parts."""
        return sum(part.rows for part in self.finished().values())

    def tidy(self) -> None:
        """Scratch folders are gone with their attempts, or with the temporary files of their host."""

    def remove_notes(self) -> None:
        """The notes have done their work."""
        self.remote.remove_notes(self.watermark)


def _note(directory: Path, file: str) -> Path:
    return (directory / file).with_suffix(".json")


def _number(path: Path) -> int:
    try:
        return int(path.read_text() or "0")
    except (OSError, ValueError):
        return 0
