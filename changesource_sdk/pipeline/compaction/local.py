"""Compaction in this process: items spill to one file per bucket, and buckets are folded one after the other.

No more than one bucket is in memory at a time. Slower than Spark, but needs no cluster.
"""

from __future__ import annotations

import pickle
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeVar

from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.spool.snapshots import PartInfo
from changesource_sdk.pipeline.compaction.fold import Findings, Item, Sorting, SortKey, Tie, scan
from changesource_sdk.pipeline.compaction.job import Done, Folding, ReadableRange
from service_kit.private_files import FOLDER_MODE, opener

_SPILL_ITEMS = 256
T = TypeVar("T")


class LocalLane:
    """A `Lane` of one process and one thread."""

    def scan(self, log_ranges: Sequence[ReadableRange], done: Done) -> list[Findings]:
        """`fold.scan` of every range."""
        return [scan(each.changes()) for each in _counted(log_ranges, done)]

    def ties(self, log_ranges: Sequence[ReadableRange], sorting: Sorting, done: Done) -> list[Tie]:
        """The tied keys of all ranges."""
        return [tie for each in _counted(log_ranges, done) for tie in sorting.ties(each.changes())]

    def fold(self, folding: Folding, done: Done) -> list[PartInfo]:
        """Spill, then fold bucket by bucket."""
        folder = folding.directory / "buckets"
        with disk_errors(folder):
            folder.mkdir(mode=FOLDER_MODE)
            with _Buckets(folder, folding.buckets) as buckets:
                for item in items_of(folding, done):
                    buckets.add(item)
            parts: list[PartInfo] = []
            for bucket in _counted(range(folding.buckets), done):
                items = sorted(buckets.read(bucket), key=lambda item: item[0])
                parts += folding.write_bucket(bucket, items, folding.directory)
            shutil.rmtree(folder)
        return parts


def _counted(units: Iterable[T], done: Done) -> Iterator[T]:
    """The same units of work; `done` is called after each."""
    for unit in units:
        yield unit
        done(1)


def items_of(folding: Folding, done: Done) -> Iterator[Item]:
    """All items of old rows and of changes."""
    rows = (folding.sorting.rows(part.payloads()) for part in _counted(folding.parts, done))
    changes = (folding.sorting.changes(each.changes()) for each in _counted(folding.log_ranges, done))
    return chain.from_iterable(chain(rows, changes))


def bucket_of(key: SortKey, buckets: int) -> int:
    """Where items of one group meet; the same in every process, whatever its hash seed."""
    return zlib.crc32(key[1], key[0]) % buckets


class _Buckets:
    """One file per bucket. Items are buffered, so that few large writes reach the disk."""

    def __init__(self, folder: Path, count: int) -> None:
        self._paths = [folder / f"{number}.items" for number in range(count)]
        # Open for writing between `__enter__` and `__exit__`, by bucket.
        self._files: list[BinaryIO] = []
        # Items that are not in the files yet, by bucket; `add` fills, `_spill` empties.
        self._waiting: list[list[Item]] = [[] for _ in range(count)]

    def __enter__(self) -> _Buckets:
        self._files = [open(path, "wb", opener=opener) for path in self._paths]  # noqa: SIM115 - closed by `__exit__`
        return self

    def __exit__(self, *_: object) -> None:
        for bucket in range(len(self._files)):
            self._spill(bucket)
            self._files[bucket].close()

    def add(self, item: Item) -> None:
        bucket = bucket_of(item[0], len(self._paths))
        self._waiting[bucket].append(item)
        if len(self._waiting[bucket]) >= _SPILL_ITEMS:
            self._spill(bucket)

    def _spill(self, bucket: int) -> None:
        pickle.dump(self._waiting[bucket], self._files[bucket], pickle.HIGHEST_PROTOCOL)
        self._waiting[bucket].clear()

    def read(self, bucket: int) -> Iterable[Item]:
        with self._paths[bucket].open("rb") as file:
            while True:
                try:
                    yield from pickle.load(file)
                except EOFError:
                    return
