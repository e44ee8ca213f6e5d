"""Snapshots on a file system that hosts reach by URI (`s3://`, `gs://`, `hdfs://`, `file://`), through `pyarrow.fs`.

Tasks put the parts they write here (`spool.parts`); the pipeline adds what it has itself and publishes the snapshot
before the log names it. An endpoint that has to serve it brings it to its own disk, once, and serves it from there.
Object stores cannot rename, so the manifest is what makes a snapshot complete: it is written last, removed first, and
names every part with its size.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.spool.snapshots import MANIFEST, Manifest, gone, is_complete, read_manifest, stage
from changesource_sdk.errors import ConfigurationError, SnapshotGone, StateError
from protocol.redaction import shown_url
from protocol.watermark import is_valid

_PIECE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RemoteSpool:
    """One folder per snapshot under `uri`. Invariant: a folder whose manifest is there is complete."""

    uri: str

    @property
    def where(self) -> str:
        """The URI for people, without secrets."""
        return shown_url(self.uri)

    def under(self, name: str) -> RemoteSpool:
        """The folder of this name in it; options of the file system, in the URI's query, stay."""
        parts = urlsplit(self.uri)
        return RemoteSpool(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    def publish(self, directory: Path) -> None:
        """Copy what is here of a finished snapshot; the rest must be there. Doing it again replaces it."""
        watermark, parts = directory.name, read_manifest(directory).parts
        elsewhere = [part for part in parts if not (directory / part.file).exists()]
        sizes = self.sizes(watermark, [part.file for part in elsewhere])
        for part, size in zip(elsewhere, sizes, strict=True):
            if size < part.bytes:
                raise SnapshotGone(
                    "part-missing",
                    f"{part.file} of snapshot {watermark} is not in the spool",
                    self.where,
                    "it is retried",
                )
        for part in parts:
            if part not in elsewhere:
                self.put(watermark, directory / part.file, part.file)
        self.put(watermark, directory / MANIFEST, MANIFEST)

    def put(self, watermark: str, file: Path, name: str) -> None:
        """Copy one file into a snapshot's folder."""
        with self._file_system() as (files, root):
            files.create_dir(f"{root}/{watermark}", recursive=True)
            _upload(file, files, f"{root}/{watermark}/{name}")

    def get(self, watermark: str, name: str, target: Path) -> None:
        """Bring one file of a snapshot here; `SnapshotGone` if it is not there."""
        with self._file_system() as (files, root):
            try:
                _download(files, f"{root}/{watermark}/{name}", target)
            except FileNotFoundError as error:
                raise gone(watermark, self.where) from error

    def sizes(self, watermark: str, names: Sequence[str]) -> list[int]:
        """The size of each file in a snapshot's folder, 0 if it is not there."""
        if not names:
            return []
        with self._file_system() as (files, root):
            return [info.size or 0 for info in files.get_file_info([f"{root}/{watermark}/{name}" for name in names])]

    def notes(self, watermark: str) -> list[dict[str, object]]:
        """What the notes beside the parts of an unfinished snapshot say."""
        found = []
        with self._file_system() as (files, _):
            for path in self._note_paths(watermark):
                with files.open_input_stream(path) as content:
                    found.append(json.loads(content.read()))
        return found

    def remove_notes(self, watermark: str) -> None:
        """Remove them."""
        with self._file_system() as (files, _):
            for path in self._note_paths(watermark):
                files.delete_file(path)

    def _note_paths(self, watermark: str) -> list[str]:
        with self._file_system() as (files, root):
            from pyarrow.fs import FileSelector

            found = files.get_file_info(FileSelector(f"{root}/{watermark}", allow_not_found=True))
            return [info.path for info in found if info.base_name.startswith("part-") and info.extension == "json"]

    def manifest(self, watermark: str) -> Manifest:
        """What a snapshot consists of; `SnapshotGone` if it is not there."""
        with self._file_system() as (files, root), tempfile.TemporaryDirectory() as scratch:
            with contextlib.suppress(FileNotFoundError):
                _download(files, f"{root}/{watermark}/{MANIFEST}", Path(scratch) / MANIFEST)
            return read_manifest(Path(scratch))

    def holds(self, watermark: str) -> bool:
        """Whether the snapshot is there, each part of its full size."""
        try:
            parts = self.manifest(watermark).parts
        except SnapshotGone:
            return False
        sizes = self.sizes(watermark, [part.file for part in parts])
        return all(size >= part.bytes for size, part in zip(sizes, parts, strict=True))

    def fetch(self, watermark: str, spool: Path) -> Path:
        """Bring a snapshot into a local spool, unless it is there; its folder."""
        final = spool / watermark
        if is_complete(final):
            return final
        staged = stage(spool, watermark)
        self._download_all(watermark, staged)
        with disk_errors(spool):
            shutil.rmtree(final, ignore_errors=True)
            staged.rename(final)
        return final

    def _download_all(self, watermark: str, target: Path) -> None:
        with self._file_system() as (files, root):
            try:
                _download(files, f"{root}/{watermark}/{MANIFEST}", target / MANIFEST)
                for part in read_manifest(target).parts:
                    _download(files, f"{root}/{watermark}/{part.file}", target / part.file)
            except FileNotFoundError as error:
                raise gone(watermark, self.where) from error

    def watermarks(self) -> list[str]:
        """The snapshots that are there, whole or not, in order."""
        with self._file_system() as (files, root):
            from pyarrow.fs import FileSelector

            found = files.get_file_info(FileSelector(root, allow_not_found=True))
            return sorted(info.base_name for info in found if is_valid(info.base_name))

    def sweep(self, named: Iterable[str]) -> None:
        """Remove snapshots that the log does not name. Nothing else there is ours, and what is above all that are
        named is under way.
        """
        kept = set(named)
        newest = max(kept, default="")
        gone = [watermark for watermark in self.watermarks() if watermark not in kept and watermark < newest]
        with self._file_system() as (files, root):
            for watermark in gone:
                if files.get_file_info(f"{root}/{watermark}/{MANIFEST}").is_file:
                    files.delete_file(f"{root}/{watermark}/{MANIFEST}")
                files.delete_dir(f"{root}/{watermark}")

    @contextmanager
    def _file_system(self) -> Iterator[tuple[Any, str]]:
        """The file system and the path of the spool on it; its failures become errors of ours."""
        try:
            from pyarrow.fs import FileSystem

            files, root = FileSystem.from_uri(self.uri)
        except ImportError as error:
            raise ConfigurationError(
                "pyarrow-missing", f"a spool with a URI needs pyarrow: {error}", "--spool", "pip install pyarrow"
            ) from error
        except (ValueError, OSError) as error:
            raise ConfigurationError(
                "bad-spool", f"the spool's URI cannot be used: {error}", self.where, "correct --spool"
            ) from error
        try:
            yield files, root.rstrip("/")
        except OSError as error:
            raise StateError(
                "spool-failed",
                f"the spool cannot be read or written: {error}",
                self.where,
                "check that it can be reached and that this user may write there; it is tried again",
            ) from error


def _upload(source: Path, files: Any, target: str) -> None:
    with disk_errors(source), source.open("rb") as content, files.open_output_stream(target) as sink:
        shutil.copyfileobj(content, sink, _PIECE)


def _download(files: Any, source: str, target: Path) -> None:
    with files.open_input_stream(source) as content, target.open("wb") as sink:
        shutil.copyfileobj(content, sink, _PIECE)
