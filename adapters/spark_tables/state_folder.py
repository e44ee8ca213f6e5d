"""What is remembered of each table between two looks, in one folder per table.

Files get names that say what they hold (a digest, a version), are staged and renamed, and are never changed, so
that whatever a token names is there whole. Driver and Spark tasks must both reach the folder. If it is lost, tokens
mean nothing any more and the tables are read anew.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.shape import Shape
from adapters.spark_tables.versions import lost


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of one table; made when something is first put there."""

    root: Path

    def path(self, name: str) -> Path:
        """Where something of that name is, or will be; the folder above it exists."""
        found = self.root / name
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def remember(self, shape: Shape) -> str:
        """Keep a shape; the name to ask for it by."""
        text = shape.to_json()
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        if not self._shape_file(name).exists():
            write_whole(self._shape_file(name), text.encode())
        return name

    def shape(self, name: str) -> Shape:
        """A shape that was kept; without it there is no going on."""
        try:
            return Shape.from_json(self._shape_file(name).read_text())
        except FileNotFoundError:
            raise lost(f"{self.root} no longer holds what was remembered of the table") from None

    def _shape_file(self, name: str) -> Path:
        return self.path(f"shape-{name}.json")


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The folders of all tables."""

    root: str

    def of(self, table: TableSettings) -> TableFolder:
        """The folder of a table; another source or key has another one."""
        readable = re.sub(r"[^A-Za-z0-9_-]", "_", table.name)
        return TableFolder(Path(self.root).absolute() / f"{readable}-{table.identity}")


def write_whole(path: Path, content: bytes) -> None:
    """A file that is there whole or not at all, also after a power cut."""
    staged = path.with_name(f"{path.name}.{os.getpid()}.staged")
    with staged.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
