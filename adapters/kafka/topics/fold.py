"""The last row of each key, of any number of records, in bounded memory.

A snapshot partition puts in the rows that it reads, in offset order, and takes out the last row of each key. Rows are
pickled in a dict until they take `limit` bytes. Then they are written to files, one for each of `BUCKETS` buckets of
keys, and folded again bucket by bucket when they are taken out. A bucket that is still too large is divided in the same
way. The files are in a temporary folder, which is removed with the fold.
"""

from __future__ import annotations

import pickle
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from changesource_sdk import BadRow, Row

LIMIT_BYTES = 48 * 1024 * 1024
BUCKETS, BUCKET_BITS = 16, 4
DEEPEST = 32 // BUCKET_BITS - 1
"""Each division uses other bits of a key's checksum; when none are left, the bucket is kept in memory."""

ENTRY_BYTES = 150
"""What a key and a row cost in addition to their bytes: two objects and an entry of a dict."""

_GONE, _WHOLE, _PART, _BAD = 0, 1, 2, 3
_HEADER = struct.Struct("<BII")
Entry = tuple[int, bytes]


# Not `protocol.fold.rows.FoldedTables`: a topic holds any number of rows, so they are kept packed and spill to disk.
class Fold:
    """Rows by key, for one thread. The last `put`, `merge` or `remove` of a key wins, also over rows in files."""

    def __init__(self, limit: int = LIMIT_BYTES, scratch: str | None = None, depth: int = 0) -> None:
        self._limit = limit
        self._scratch = scratch
        self._depth = depth
        self._entries: dict[bytes, Entry] = {}  # in memory; `_spill` and `clear` empty it
        self._held = 0  # bytes that `_entries` takes, about
        self._folder: Path | None = None  # of the files; None until the first spill
        self._files: dict[int, BinaryIO] = {}  # by bucket, open for writing and reading

    def __enter__(self) -> Fold:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    @property
    def spilled(self) -> bool:
        """Whether some rows are in files."""
        return self._folder is not None

    def put(self, key: bytes, row: Row) -> None:
        self._put(key, (_WHOLE, pickle.dumps(row)))

    def merge(self, key: bytes, row: Row) -> None:
        """Some columns of a row; the others are unchanged."""
        known = self._entries.get(key)
        if known is None:
            self._put(key, (_PART, pickle.dumps(row)))
        else:
            self._put(key, _merged(known, (_PART, pickle.dumps(row))))

    def put_bad(self, key: bytes, row: BadRow) -> None:
        """A row that cannot be read; some of its columns do not make it known again, a whole row does."""
        self._put(key, (_BAD, pickle.dumps(row)))

    def remove(self, key: bytes) -> None:
        if self.spilled:
            self._put(key, (_GONE, b""))
        elif (known := self._entries.pop(key, None)) is not None:
            self._held -= _weight(key, known)

    def clear(self) -> None:
        """Remove all rows and files."""
        self._entries, self._held = {}, 0
        for file in self._files.values():
            file.close()
        self._files = {}
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def rows(self) -> Iterator[Row]:
        """The remaining rows, in any order, with a `BadRow` in place of one that cannot be read; can be called once."""
        if not self.spilled:
            for kind, packed in self._entries.values():
                if kind != _GONE:
                    yield pickle.loads(packed)
            return
        self._spill()
        for file in self._files.values():
            with Fold(self._limit, self._scratch, self._depth + 1) as bucket:
                for key, entry in _entries(file):
                    bucket._take(key, entry)
                yield from bucket.rows()

    def _take(self, key: bytes, entry: Entry) -> None:
        """Add an entry of a file, after all earlier ones of its key."""
        known = self._entries.get(key)
        self._put(key, entry if known is None else _merged(known, entry))

    def _put(self, key: bytes, entry: Entry) -> None:
        known = self._entries.get(key)
        self._entries[key] = entry
        self._held += _weight(key, entry) - (0 if known is None else _weight(key, known))
        if self._held > self._limit and len(self._entries) > BUCKETS and self._depth <= DEEPEST:
            self._spill()

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="changesource-fold-", dir=self._scratch))
        for key, (kind, packed) in self._entries.items():
            file = self._file(self._folder, crc32(key) >> self._depth * BUCKET_BITS & BUCKETS - 1)
            file.write(_HEADER.pack(kind, len(key), len(packed)))
            file.write(key)
            file.write(packed)
        self._entries, self._held = {}, 0

    def _file(self, folder: Path, bucket: int) -> BinaryIO:
        if bucket not in self._files:
            self._files[bucket] = (folder / str(bucket)).open("w+b")
        return self._files[bucket]


def _weight(key: bytes, entry: Entry) -> int:
    return len(key) + len(entry[1]) + ENTRY_BYTES


def _merged(known: Entry, entry: Entry) -> Entry:
    """Two entries of a key combined."""
    if entry[0] != _PART or known[0] == _GONE:
        return entry
    if known[0] == _BAD:
        return known
    return known[0], pickle.dumps({**pickle.loads(known[1]), **pickle.loads(entry[1])})


def _entries(file: BinaryIO) -> Iterator[tuple[bytes, Entry]]:
    file.flush()
    file.seek(0)
    while header := file.read(_HEADER.size):
        kind, key_size, size = _HEADER.unpack(header)
        yield file.read(key_size), (kind, file.read(size))
