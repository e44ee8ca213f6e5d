"""The spool: snapshots as folders of block files, written part by part and served many times.

A snapshot is a folder `spool/<watermark>/` with a manifest and parts: first the schema, then the rows, last the indexes
that are cheaper to build at the end. The frames of all parts in order, between a `begin` and a `commit` of the
watermark, are an initial sync. Parts are written into a staging folder, possibly by many processes at once
(`write_part` needs only a path and an encoder); the manifest comes last and the folder is renamed, so a folder with
a watermark's name is always complete.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.files.layout import sync_directory
from changesource_sdk.changelog.spool.blocks import BlockFile, BlockWriter
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.positions import Position
from service_kit.private_files import new_folder

FORMAT = 1
MANIFEST = "manifest.json"
RESUMABLE = ".resumable"
"""How the folder of a snapshot ends that a later process may resume; writers do not delete it."""

T = TypeVar("T")
RowsEncoder = Callable[[Iterable[T]], Iterator[tuple[int, bytes]]]
"""Rows to insert frames, as (number of rows, frames) batches; `TableEncoder.inserts` is one."""


@dataclass(frozen=True, slots=True)
class PartInfo:
    """One finished part: its file, the table its rows belong to ("" for schema parts), and what is in it.

    `letters` are the texts of dead letters about rows that were left out; a manifest has none, the log keeps them.
    """

    file: str
    table: str
    rows: int
    bytes: int
    crc32: int
    letters: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The fields of a note or manifest; letters only if there are some, as earlier releases do not know them."""
        return {name: value for name, value in asdict(self).items() if name != "letters" or value}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot consists of. Parts are in serving order."""

    watermark: str
    position: Position
    schema: str
    created_ms: float
    parts: tuple[PartInfo, ...]

    @property
    def rows(self) -> int:
        """Rows in all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of frames in all parts."""
        return sum(part.bytes for part in self.parts)


def part_name(number: int) -> str:
    """The file name of a part; names sort in serving order."""
    return f"part-{number:05d}.frames"


def write_part(
    directory: Path,
    number: int,
    table: str,
    rows: Iterable[T],
    encoder: RowsEncoder[T],
    progress: Callable[[int], None] = lambda rows: None,
) -> PartInfo:
    """Encode rows into one durable part; `progress` is called with the number of rows added each time. Running it again
    replaces the part.
    """
    count = 0
    with BlockWriter(directory / part_name(number)) as writer:
        for added, frames in encoder(rows):
            writer.write(frames)
            count += added
            progress(added)
        return _part_info(writer.finish(), table, count)


def write_frames(directory: Path, number: int, frames: Iterable[bytes]) -> PartInfo:
    """Write a part of ready frames that belong to no table: the schema."""
    with BlockWriter(directory / part_name(number)) as writer:
        for item in frames:
            writer.write(item)
        return _part_info(writer.finish(), "", 0)


def _part_info(file: BlockFile, table: str, rows: int) -> PartInfo:
    return PartInfo(file.path.name, table, rows, file.size, file.crc32)


def stage(spool: Path, watermark: str, *, resumable: bool = False) -> Path:
    """Make an empty folder for the parts of a snapshot; that of an earlier attempt is deleted."""
    directory = spool / f"{watermark}{RESUMABLE if resumable else '.partial'}"
    shutil.rmtree(directory, ignore_errors=True)
    with disk_errors(directory):
        new_folder(directory)
    return directory


def complete(directory: Path, manifest: Manifest) -> Path:
    """Write the manifest, rename the folder to its final name, and return the final path."""
    final = directory.with_name(manifest.watermark)
    with disk_errors(directory):
        content = {"format": FORMAT, **asdict(manifest), "parts": [part.as_json() for part in manifest.parts]}
        write_json(directory / MANIFEST, content, durable=True)
        sync_directory(directory)
        shutil.rmtree(final, ignore_errors=True)
        directory.rename(final)
        sync_directory(final.parent)
    return final


def adopt(directory: Path, final: Path) -> None:
    """Rename the folder of a complete snapshot to `final`, in the spool; both are on the same disk."""
    with disk_errors(final):
        shutil.rmtree(final, ignore_errors=True)
        directory.rename(final)
        sync_directory(final.parent)


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """Prevent `discard` of the snapshot inside the block, by a shared `flock` that also ends with the process.

    Raises `SnapshotGone` if there is no such snapshot.
    """
    try:
        descriptor = os.open(directory / MANIFEST, os.O_RDONLY)
    except OSError as error:
        raise _no_manifest(directory) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def discard(directory: Path) -> bool:
    """Remove a snapshot unless a process is reading it; returns whether it is gone."""
    try:
        descriptor = os.open(directory / MANIFEST, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        shutil.rmtree(directory, ignore_errors=True)
    return True


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a complete snapshot; raises `SnapshotGone` if there is none that this release reads."""
    return manifest_of(read_json(directory / MANIFEST), directory)


def manifest_of(content: dict[str, object] | None, directory: Path) -> Manifest:
    """Make the manifest that was stored as this JSON object; raises `SnapshotGone` if this release cannot read it."""
    if content is None or content.pop("format", None) != FORMAT:
        raise _no_manifest(directory)
    parts = content.pop("parts")
    assert isinstance(parts, list)
    return Manifest(parts=tuple(PartInfo(**part) for part in parts), **content)  # type: ignore[arg-type]


def gone(watermark: str, where: str) -> SnapshotGone:
    """Return the error for a snapshot that was replaced by another and deleted."""
    return SnapshotGone("snapshot-replaced", f"snapshot {watermark} is no longer in the spool", where, "connect again")


def _no_manifest(directory: Path) -> SnapshotGone:
    return SnapshotGone(
        "manifest-unreadable",
        "the snapshot has no manifest that this release can read",
        where=str(directory),
        fix="ask for the newest snapshot again; if it persists, remove log.sqlite so that a new one is taken",
    )


def is_complete(directory: Path) -> bool:
    """Whether the manifest and all its files exist, each of its full size. The contents are checked when read."""
    try:
        manifest = read_manifest(directory)
        return all((directory / part.file).stat().st_size >= part.bytes for part in manifest.parts)
    except (SnapshotGone, OSError):
        return False


def blocks(directory: Path, manifest: Manifest) -> Iterator[bytes]:
    """Yield all frames of a snapshot in serving order, block by block; raises `SnapshotGone` as `BlockFile.blocks`."""
    for part in manifest.parts:
        yield from BlockFile(directory / part.file, part.bytes, part.crc32).blocks()
