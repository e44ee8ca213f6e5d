"""Reads the commits of a Delta table from its log: when, what kind of change, and whether the columns changed.

Only one small file per version is read, so polling for a new version is cheap. A version whose file does not exist was
cleaned up: the table still exists, but not the change that led to this version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

FEED_SETTING = "delta.enableChangeDataFeed"
MAPPING_SETTING = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One version. `metadata` is there if the commit set it.

    `has_rows`: rows may have changed. `has_feed`: what changed was written down with the commit; otherwise it follows
    from the files that came and went, unless `has_vectors`: only some rows of these are meant.
    """

    version: int
    time_ms: float
    metadata: Mapping[str, Any] | None
    has_rows: bool
    has_feed: bool
    has_vectors: bool


class DeltaLog:
    """The commits of a table at a location."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self._location = location
        self._options = dict(options) or None
        self._opened: fs.FileSystem | None = None  # the table's folder; `_files` opens it when the table exists

    def mark(self, version: int) -> str | None:
        """See `DeltaAccess.mark`."""
        files = self._files()
        info = None if files is None else files.get_file_info(commit_path(version))
        return None if info is None or info.type == fs.FileType.NotFound else f"{info.mtime_ns}-{info.size}"

    def read(self, version: int) -> DeltaCommit | None:
        """A commit; None if it does not exist yet, or was cleaned up."""
        files = self._files()
        if files is None:
            return None
        try:
            with files.open_input_stream(commit_path(version)) as file:
                text = file.read()
        except FileNotFoundError:
            return None
        return read_commit(version, text)

    def _files(self) -> fs.FileSystem | None:
        """The folder of the table; None if there is no table at present."""
        from deltalake.exceptions import TableNotFoundError
        from deltalake.fs import DeltaStorageHandler

        if self._opened is None:
            try:
                self._opened = fs.PyFileSystem(DeltaStorageHandler(self._location, self._options))
            except TableNotFoundError:
                return None
        return self._opened


def commit_path(version: int) -> str:
    """The file of a commit, relative to the table."""
    return f"_delta_log/{version:020}.json"


def read_commit(version: int, text: bytes) -> DeltaCommit:
    """Parse a commit's file."""
    actions: dict[str, list[Mapping[str, Any]]] = {}
    for line in text.splitlines():
        for kind, action in json.loads(line).items() if line.strip() else ():
            actions.setdefault(kind, []).append(action)
    info = (actions.get("commitInfo") or [{}])[0]
    moved = [file for kind in ("add", "remove") for file in actions.get(kind, ()) if file.get("dataChange", True)]
    return DeltaCommit(
        version,
        time_ms=float(info.get("inCommitTimestamp") or info.get("timestamp") or 0.0),
        metadata=actions["metaData"][-1] if "metaData" in actions else None,
        has_rows=bool(moved or actions.get("cdc")),
        has_feed=bool(actions.get("cdc")),
        has_vectors=any(file.get("deletionVector") for file in moved),
    )
