"""What is remembered of a table without a change feed: key and row hash of every row, by version.

A version is one JSON file, `version-N.json`, that names Parquet folders: a base, and the deltas since. New folders are
written and existing ones kept; a folder counts once a version names it, and a version counts once the log's position
names its number. So state and log commit together in the log's own transaction: killed anywhere, the position that the
log holds names a version whose files are all there, and what no position names is swept away.

Removal follows the same rule: a version goes only after a later one is durable in the log. Numbers are never used
twice, even if the folder was lost: they grow with the clock.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pyarrow import fs

_NUMBERED = re.compile(r"(?:base|delta|rows|version)-(\d+)(?:\.json)?")
_STAGED = ".staged"


@dataclass(frozen=True, slots=True)
class StateVersion:
    """A table as it was: `rows` keys with their hashes are those of the base, overlaid by the deltas in order.

    `key_types` is the schema of the keys, `fingerprint` what the source looked like, `hash_compares` and `compared_at`
    (epoch seconds) how often and since when only hashes were compared.
    """

    number: int
    base: str
    deltas: tuple[str, ...]
    rows: int
    delta_rows: int
    key_types: str
    fingerprint: str | None
    hash_compares: int
    compared_at: float


class StateFolder:
    """The versions of one table in a folder of any file system that Spark and Arrow share.

    Invariant: every folder that a version names is whole.
    """

    def __init__(self, root: str, clock: Callable[[], float] = time.time) -> None:
        uri = root.rstrip("/") if "://" in root else Path(root).expanduser().resolve().as_uri()
        self.root = uri
        self._files, self._root = fs.FileSystem.from_uri(uri)
        self._clock = clock

    def load(self, number: int) -> StateVersion | None:
        """A version; None if it, or a folder it names, is not there."""
        path = self.path(f"version-{number}.json")
        if self._files.get_file_info(path).type != fs.FileType.File:
            return None
        with self._files.open_input_stream(path) as file:
            fields = json.loads(file.read())
        fields["hash_compares"] = fields.pop("looks")  # its name in the files of all versions
        version = StateVersion(**fields | {"deltas": tuple(fields["deltas"])})
        return version if all(map(self.holds, (version.base, *version.deltas))) else None

    def save(self, version: StateVersion) -> None:
        """Write a version whole, or replace it."""
        self._files.create_dir(self._root, recursive=True)
        path = self.path(f"version-{version.number}.json")
        with self._files.open_output_stream(path + _STAGED) as file:
            fields = asdict(version)
            fields["looks"] = fields.pop("hash_compares")
            file.write(json.dumps(fields).encode())
        self._files.move(path + _STAGED, path)

    def next_number(self) -> int:
        """A number above all that were used."""
        used = [number for _, number in self._entries()]
        return max(int(self._clock() * 1_000_000), *(number + 1 for number in used), 1)

    def holds(self, name: str) -> bool:
        """Whether a folder is there."""
        return bool(self._files.get_file_info(self.path(name)).type == fs.FileType.Directory)

    def forget_before(self, number: int) -> None:
        """A version is durable: older ones, and folders of theirs that none of those left names, go."""
        self._remove(lambda each: each < number, lambda each: each < number)

    def keep_only(self, number: int) -> None:
        """Nothing but this version is wanted: what was begun and never became durable goes, too."""
        self._remove(lambda each: each != number, lambda each: True)

    def remove(self, name: str) -> None:
        """Remove a folder, if it is there."""
        if self.holds(name):
            self._files.delete_dir(self.path(name))

    def parquet_files(self, name: str) -> list[str]:
        """The data files of a folder, as paths of `files`."""
        entries = self._files.get_file_info(fs.FileSelector(self.path(name), recursive=True))
        return sorted(info.path for info in entries if info.path.endswith(".parquet") and info.size)

    @property
    def files(self) -> fs.FileSystem:
        """Where everything is."""
        return self._files

    def uri(self, name: str) -> str:
        """The URI of a folder, for Spark."""
        return f"{self.root}/{name}"

    def path(self, name: str) -> str:
        """A folder as a path of `files`."""
        return f"{self._root}/{name}"

    def _remove(self, unwanted: Callable[[int], bool], unwanted_folder: Callable[[int], bool]) -> None:
        entries = list(self._entries())
        versions = [number for name, number in entries if name.startswith("version-") and not name.endswith(_STAGED)]
        for number in filter(unwanted, versions):
            self._files.delete_file(self.path(f"version-{number}.json"))
        kept = [version for number in versions if not unwanted(number) and (version := self.load(number))]
        named = {name for version in kept for name in (version.base, *version.deltas)}
        for name, number in entries:
            if not name.startswith("version-") and name not in named and unwanted_folder(number):
                self.remove(name)

    def _entries(self) -> Iterable[tuple[str, int]]:
        selector = fs.FileSelector(self._root, allow_not_found=True)
        for info in self._files.get_file_info(selector):
            if match := _NUMBERED.match(info.base_name):
                yield info.base_name, int(match[1])
