"""Snapshots on a file system that hosts reach by URI (`s3://`, `gs://`, `hdfs://`, `file://`), through `pyarrow.fs`.

The pipeline finishes a snapshot in a directory of its own and publishes it here before the log names it; an endpoint
that has to serve it brings it to its own disk, once, and serves it from there. Object stores cannot rename, so the
manifest is what makes a snapshot complete: it is written last, removed first, and names every part with its size.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from changesource_sdk.changelog.disk import disk_errors
from changesource_sdk.changelog.snapshots import MANIFEST, Manifest, is_complete, read_manifest, stage
from changesource_sdk.errors import ConfigurationError, SnapshotGone, StateError
from protocol.watermark import is_valid

_PIECE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RemoteSpool:
    """One folder per snapshot under `uri`. Invariant: a folder whose manifest is there is complete."""

    uri: str

    @property
    def where(self) -> str:
        """The URI for people, without secrets."""
        parts = urlsplit(self.uri)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def publish(self, directory: Path) -> None:
        """Copy a finished snapshot; doing it again replaces it."""
        with self._file_system() as (files, root):
            target = f"{root}/{directory.name}"
            files.create_dir(target, recursive=True)
            for part in read_manifest(directory).parts:
                _upload(directory / part.file, files, f"{target}/{part.file}")
            _upload(directory / MANIFEST, files, f"{target}/{MANIFEST}")

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
        with self._file_system() as (files, root):
            found = files.get_file_info([f"{root}/{watermark}/{part.file}" for part in parts])
            return all((info.size or 0) >= part.bytes for info, part in zip(found, parts, strict=True))

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
                raise SnapshotGone(
                    "snapshot-replaced", f"snapshot {watermark} is no longer in the spool", self.where, "connect again"
                ) from error

    def watermarks(self) -> list[str]:
        """The snapshots that are there, whole or not, in order."""
        with self._file_system() as (files, root):
            from pyarrow.fs import FileSelector  # type: ignore[import-untyped]

            found = files.get_file_info(FileSelector(root, allow_not_found=True))
            return sorted(info.base_name for info in found if is_valid(info.base_name))

    def sweep(self, named: Iterable[str]) -> None:
        """Remove snapshots that the log does not name. Nothing else there is ours."""
        kept = set(named)
        gone = [watermark for watermark in self.watermarks() if watermark not in kept]
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
