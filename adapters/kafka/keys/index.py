"""The last record of each key in each partition of one topic, on disk, to decide whether a record is the newest.

A temporary SQLite file, removed by `close`; memory is bounded by SQLite's page cache. After a restart the index is
built again from the topic.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import orjson

from adapters.kafka.key_order import Candidate

CACHE_KB = 32_000
_CREATE = """
CREATE TABLE candidate (
  key BLOB NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL,
  "order" BLOB, is_bound INTEGER NOT NULL, is_whole INTEGER NOT NULL,
  PRIMARY KEY (key, partition)
) WITHOUT ROWID
"""


class KeyIndex:
    """Candidates by key. Used by one thread at a time."""

    def __init__(self, scratch: str | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="changesource-keys-", dir=scratch))
        self._db = sqlite3.connect(self._folder / "keys.db", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        self._db.execute(_CREATE)

    def add(self, candidates: Mapping[bytes, Candidate]) -> None:
        """Add records that come after the known ones; each becomes the last of its key in its partition."""
        rows = [(key, *_packed(self._after_known(key, candidate))) for key, candidate in candidates.items()]
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR REPLACE INTO candidate VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def of(self, key: bytes) -> list[Candidate]:
        """The last record of a key in each partition that has one."""
        rows = self._db.execute(
            'SELECT partition, offset, "order", is_bound, is_whole FROM candidate WHERE key = ?', (key,)
        )
        return [_unpacked(row) for row in rows]

    def contested(self) -> Iterator[tuple[bytes, list[Candidate]]]:
        """The keys that are in several partitions."""
        rows = self._db.execute(
            'SELECT key, partition, offset, "order", is_bound, is_whole FROM candidate WHERE key IN '
            "(SELECT key FROM candidate GROUP BY key HAVING count(*) > 1) ORDER BY key"
        )
        for key, group in groupby(rows, key=itemgetter(0)):
            yield key, [_unpacked(row[1:]) for row in group]

    def _after_known(self, key: bytes, candidate: Candidate) -> Candidate:
        if candidate.order is not None and candidate.is_whole:
            return candidate
        known = (each for each in self.of(key) if each.partition == candidate.partition)
        return candidate.after(next(known, None))

    def close(self) -> None:
        """Remove the file."""
        self._db.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _packed(candidate: Candidate) -> tuple[int, int, bytes | None, bool, bool]:
    order = None if candidate.order is None else orjson.dumps(candidate.order)
    return candidate.partition, candidate.offset, order, candidate.is_bound, candidate.is_whole


def _unpacked(row: tuple[int, int, bytes | None, int, int]) -> Candidate:
    partition, offset, order, is_bound, is_whole = row
    return Candidate(
        partition, offset, None if order is None else tuple(orjson.loads(order)), bool(is_bound), bool(is_whole)
    )
