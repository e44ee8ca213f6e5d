"""Seeds on a file system that hosts reach by URI or path, through `pyarrow.fs`: upload, list, fetch, delete.

A seed is a folder with the compressed file and a description, `seed.json`, which is put last and deleted first: a
folder without it is not a seed. The description has the SHA-256 of the file; `fetch` verifies it while it writes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from changesource_sdk.changelog.files.atomic_json import parsed_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.errors import ConfigurationError, StateError
from changesource_sdk.seed.layout import layout_of
from changesource_sdk.seed.pieces import Rows
from protocol.redaction import shown_url
from service_kit.private_files import opener

FORMAT = 1
DESCRIPTION = "seed.json"
CONTENT = "replica.db.zst"
_COMPRESSION = "zstd"
_COPY_BYTES = 4 * 1024 * 1024
_MOST_DESCRIPTION_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Description:
    """What `seed.json` says. `watermark` is the log's head that the seed shows, `version` the version of its rows."""

    app_id: str
    shard: int
    publications: tuple[str, ...]
    release: str
    watermark: str
    version: str
    created_ms: float
    rows: int
    bytes: int
    compressed_bytes: int
    sha256: str

    @property
    def folder(self) -> str:
        """The name of its folder; names of one app and shard sort by age."""
        return f"{self.app_id}_{self.shard}-{self.version}"


class SeedFolder:
    """The seeds under a URI (`s3://`, `gs://`, `hdfs://`, `file://`) or a path."""

    def __init__(self, uri: str) -> None:
        self.uri = uri if "://" in uri else Path(uri).absolute().as_uri()

    def __str__(self) -> str:
        return shown_url(self.uri)  # without secrets

    def upload(self, file: Path, description: Description) -> Description:
        """Compress and store a file and return its description, with the compressed size added."""
        import pyarrow as arrow

        with self._files() as (files, root):
            folder = f"{root}/{description.folder}"
            files.create_dir(folder, recursive=True)
            with (
                file.open("rb") as content,
                files.open_output_stream(f"{folder}/{CONTENT}") as sink,
                arrow.CompressedOutputStream(sink, _COMPRESSION) as packed,
            ):
                shutil.copyfileobj(content, packed, _COPY_BYTES)
            size = files.get_file_info(f"{folder}/{CONTENT}").size or 0
            stored = Description(**{**asdict(description), "compressed_bytes": size})
            with files.open_output_stream(f"{folder}/{DESCRIPTION}") as sink:
                sink.write(orjson.dumps({"format": FORMAT, **asdict(stored)}))
        return stored

    def list(self, app_id: str, shard: int) -> list[Description]:
        """Return the seeds of an app and shard that this release can read, the newest last."""
        with self._files() as (files, root):
            from pyarrow.fs import FileSelector

            names = [each.base_name for each in files.get_file_info(FileSelector(root, allow_not_found=True))]
            own = sorted(name for name in names if name.startswith(f"{app_id}_{shard}-"))
            read = [_read(files, f"{root}/{name}/{DESCRIPTION}") for name in own]
        return sorted((each for each in read if each is not None), key=lambda each: each.version)

    def newest(self, app_id: str, shard: int) -> Description:
        """Return the newest seed of an app and shard. Raises `StateError` with the code `no-seed`."""
        known = self.list(app_id, shard)
        if not known:
            raise StateError(
                "no-seed",
                f"there is no seed of app {app_id!r}, shard {shard}",
                str(self),
                "make one with `changesource seed --upload`, or correct --app-id and --shard-num",
            )
        return known[-1]

    def fetch(self, description: Description, target: Path, done: Rows = lambda size: None) -> None:
        """Write the file of a seed to `target`; `done` gets bytes. Raises `StateError` unless it is what was uploaded.

        Never writes more than the description says, whatever the compressed file holds.
        """
        import pyarrow as arrow

        digest, size = hashlib.sha256(), 0
        with self._files() as (files, root), disk_errors(target), open(target, "wb", opener=opener) as sink:
            try:
                stored = files.open_input_stream(f"{root}/{description.folder}/{CONTENT}")
            except FileNotFoundError:
                raise self._damaged("its file is missing") from None
            with stored:
                for piece in self._unpacked(arrow.CompressedInputStream(stored, _COMPRESSION)):
                    size += len(piece)
                    if size > description.bytes:
                        raise self._damaged("it is longer than its description says")
                    digest.update(piece)
                    sink.write(piece)
                    done(len(piece))
        if (size, digest.hexdigest()) != (description.bytes, description.sha256):
            raise self._damaged("its size or SHA-256 differs from its description")

    def _unpacked(self, content: Any) -> Iterator[bytes]:
        with content:
            while True:
                try:
                    piece = content.read(_COPY_BYTES)
                except OSError as error:
                    raise self._damaged(f"it cannot be decompressed: {error}") from None
                if not piece:
                    return
                yield piece

    def delete(self, description: Description) -> None:
        """Delete a seed; nothing happens if it is gone."""
        with self._files() as (files, root):
            folder = f"{root}/{description.folder}"
            for name in (DESCRIPTION, CONTENT):
                if files.get_file_info(f"{folder}/{name}").is_file:
                    files.delete_file(f"{folder}/{name}")
            if files.get_file_info(folder).type.name != "NotFound":
                files.delete_dir(folder)

    def _damaged(self, reason: str) -> StateError:
        return StateError(
            "seed-damaged",
            f"the seed is not what was uploaded: {reason}",
            str(self),
            "nothing was installed; make a new seed with `changesource seed --upload`",
        )

    @contextmanager
    def _files(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the path; failures are `ConfigurationError` or `StateError`."""
        try:
            from pyarrow.fs import FileSystem

            files, root = FileSystem.from_uri(self.uri)
        except ImportError as error:
            raise ConfigurationError(
                "pyarrow-missing", f"seeds on a file system need pyarrow: {error}", str(self), "pip install pyarrow"
            ) from error
        except (ValueError, OSError) as error:
            raise ConfigurationError(
                "bad-seed-uri", f"the URI cannot be used: {error}", str(self), "correct it"
            ) from error
        try:
            yield files, root.rstrip("/")
        except OSError as error:
            raise StateError(
                "seed-store-failed",
                f"the seeds cannot be read or written: {error}",
                str(self),
                "check that it can be reached and what this user may do there, then run the command again",
            ) from error


def _read(files: Any, path: str) -> Description | None:
    """Return a description; None if there is none, or one of another format."""
    try:
        with files.open_input_stream(path) as stream:
            content = parsed_json(stream.read(_MOST_DESCRIPTION_BYTES))
    except FileNotFoundError:
        return None
    if content is None or content.pop("format", None) != FORMAT:
        return None
    try:
        return Description(**{**content, "publications": tuple(content["publications"])})  # type: ignore[arg-type]
    except (TypeError, KeyError):
        return None


def check_fits(description: Description, release: str, publications: tuple[str, ...] | None, where: str) -> None:
    """Raise an error unless zero-cache of this release, with these publications (None: any), can start from a seed."""
    layout_of(release)
    if description.release != release:
        raise ConfigurationError(
            "seed-of-another-release",
            f"the seed is for zero-cache {description.release}, not {release}",
            where,
            f"make a seed with --release {release}",
        )
    if publications is not None and sorted(publications) != sorted(description.publications):
        raise ConfigurationError(
            "seed-of-other-publications",
            f"the seed has publications {sorted(description.publications)}, not {sorted(publications)}",
            where,
            "make a seed with the --publications of ZERO_APP_PUBLICATIONS, or correct --publications",
        )
