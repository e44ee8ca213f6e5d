"""The shapes that positions name: a small file each, in the table's folder.

A shape's name is its digest, so a file is written once and never changed. The folder may be on any file system that
Arrow and Spark share; if it is lost, positions cannot be resumed and a resync is required.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from pyarrow import fs

from adapters.spark_tables.position import lost
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.settings import TableSettings


def table_folder(state: str, table: TableSettings) -> str:
    """The URI of a table's own folder; another source or key has another one."""
    root = state.rstrip("/") if "://" in state else Path(state).expanduser().resolve().as_uri()
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", table.name)
    return f"{root}/{readable}-{table.identity}"


class Shapes:
    """The shapes that a table has had."""

    def __init__(self, folder: str) -> None:
        self._files, self._root = fs.FileSystem.from_uri(folder)
        self._known: dict[str, Shape] = {}  # by name; a cache of the files, filled by `keep` and `get`

    def keep(self, shape: Shape) -> str:
        """Store a shape; returns its name."""
        text = shape.to_json()
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        if name not in self._known:
            self._write(self._path(name), text.encode())
            self._known[name] = shape
        return name

    def get(self, name: str) -> Shape:
        """A stored shape. Raises `ResyncRequired` if its file does not exist."""
        if name not in self._known:
            try:
                with self._files.open_input_stream(self._path(name)) as file:
                    self._known[name] = Shape.from_json(file.read().decode())
            except FileNotFoundError:
                raise lost(f"{self._root} no longer holds what was remembered of the table") from None
        return self._known[name]

    def _path(self, name: str) -> str:
        return f"{self._root}/shape-{name}.json"

    def _write(self, path: str, content: bytes) -> None:
        self._files.create_dir(self._root, recursive=True)
        with self._files.open_output_stream(f"{path}.staged") as file:
            file.write(content)
        self._files.move(f"{path}.staged", path)
