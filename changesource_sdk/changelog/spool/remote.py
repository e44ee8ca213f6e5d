"""A spool on a file system that hosts reach by URI (`s3://`, `gs://`, `hdfs://`, `file://`), through `pyarrow.fs`."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.spool.snapshots import gone
from changesource_sdk.errors import ConfigurationError, StateError
from protocol.redaction import shown_url

_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RemoteSpool:
    """A `Spool` under `uri`. Object stores cannot rename, so files are written under their final names."""

    uri: str

    def __str__(self) -> str:
        return shown_url(self.uri)  # without secrets

    def under(self, name: str) -> RemoteSpool:
        """Return the spool in the folder of this name, with the same options (the URI's query)."""
        parts = urlsplit(self.uri)
        return RemoteSpool(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    def put(self, folder: str, name: str, file: Path) -> None:
        """Upload a copy of the file."""
        with self._file_system() as (files, root):
            files.create_dir(f"{root}/{folder}", recursive=True)
            with (
                disk_errors(file),
                file.open("rb") as content,
                files.open_output_stream(f"{root}/{folder}/{name}") as sink,
            ):
                shutil.copyfileobj(content, sink, _COPY_BYTES)

    @contextmanager
    def open(self, folder: str, name: str) -> Iterator[BinaryIO]:
        """Open the file as a stream; raises `SnapshotGone` if it is not there."""
        with self._file_system() as (files, root):
            try:
                content = files.open_input_stream(f"{root}/{folder}/{name}")
            except FileNotFoundError as error:
                raise gone(folder, str(self)) from error
            with content:
                yield content

    def list(self, folder: str = "") -> dict[str, int]:
        """List a folder of the file system."""
        with self._file_system() as (files, root):
            from pyarrow.fs import FileSelector

            selector = FileSelector(f"{root}/{folder}".rstrip("/"), allow_not_found=True)
            return {info.base_name: info.size or 0 for info in files.get_file_info(selector)}

    def delete(self, folder: str, name: str = "") -> None:
        """Delete a file or a folder."""
        with self._file_system() as (files, root), contextlib.suppress(FileNotFoundError):
            if name:
                files.delete_file(f"{root}/{folder}/{name}")
            else:
                files.delete_dir(f"{root}/{folder}")

    @contextmanager
    def _file_system(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the spool's path; its failures are `ConfigurationError` or `StateError`."""
        try:
            from pyarrow.fs import FileSystem

            files, root = FileSystem.from_uri(self.uri)
        except ImportError as error:
            raise ConfigurationError(
                "pyarrow-missing", f"a spool with a URI needs pyarrow: {error}", "--spool", "pip install pyarrow"
            ) from error
        except (ValueError, OSError) as error:
            raise ConfigurationError(
                "bad-spool", f"the spool's URI cannot be used: {error}", str(self), "correct --spool"
            ) from error
        try:
            yield files, root.rstrip("/")
        except OSError as error:
            raise StateError(
                "spool-failed",
                f"the spool cannot be read or written: {error}",
                str(self),
                "check that it can be reached and that this user may write there; it is tried again",
            ) from error
