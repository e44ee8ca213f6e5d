"""The difference between a table now and what is remembered of it, computed by Spark.

The table is joined with the remembered keys and hashes (`state`); only rows that differ leave the executors, as the
Parquet files of a delta, and from there they go two ways: their values become the changes of one transaction, their
keys and hashes the next version of the state. Neither the table nor the state is rewritten for a few changes, and
nothing large passes the driver.

The result is right only if keys are unique. That is not checked directly each time. Instead the rows of the table are
counted as they are read: without the inserted ones they must be as many as the remembered rows without the deleted
ones, and no inserted key may occur twice.

Columns are numbered in these files (`k0`, `r0`, …), so that any name is safe.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, ByteType, DataType, LongType, StructField, StructType

from adapters.spark_tables.difference.files import (
    DELETE,
    DIGEST,
    HASH,
    INSERT,
    OPERATION,
    UPDATE,
    count_distinct,
    count_operations,
    count_rows,
)
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from adapters.spark_tables.rows.keys import bad_keys
from adapters.spark_tables.rows.row_hash import Value, quoted, row_digest, row_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_DELTAS = 16
MOST_DELTA_SHARE = 0.1
_FEW_ROWS = 100_000
_MOST_HASHED = 1_000_000
_PARTITIONS, _SPARK_DEFAULT = "spark.sql.shuffle.partitions", "200"
_KNOWN_HASH, _KNOWN_DIGEST = "known_hash", "known_digest"

_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
}
"""A folder counts only when a version names it, so Spark's own staging of files is not needed."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """The version after a difference, whose last delta has the changes, and how many there are."""

    version: StateVersion
    inserts: int
    updates: int
    deletes: int


class TableDifference:
    """Computes the versions of one table, each from the previous one and the table. The session is a `tuned` one."""

    def __init__(
        self,
        session: SparkSession,
        folder: StateFolder,
        table: str,
        key: Sequence[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.session = session
        self._folder = folder
        self._table = table
        self._key = tuple(key)
        self._clock = clock

    def begin(self, frame: DataFrame, fingerprint: str | None) -> StateVersion:
        """A first version with a copy of all rows, read in one go, in the folder `rows-N`."""
        number = self._folder.next_number()
        rows = f"rows-{number}"
        with self._removing(rows):
            self._write(self._columns(frame, digests=True), rows)
            return self._remember(number, self._read(rows, self._remembered_schema(frame)), frame, fingerprint)

    def remember(self, frame: DataFrame, fingerprint: str | None) -> StateVersion:
        """A first version of a frame that gives the same rows as often as it is read: no copy is needed."""
        marks = self._columns(frame, digests=True).select(*self._remembered_schema(frame).names)
        return self._remember(self._folder.next_number(), marks, frame, fingerprint)

    def _remember(self, number: int, marks: DataFrame, frame: DataFrame, fingerprint: str | None) -> StateVersion:
        base, keys = f"base-{number}", self._key_schema(frame)
        with self._removing(base):
            self._write(marks, base)
            self._check_keys(self._read(base, keys).toDF(*self._key))
        rows = count_rows(self._folder, base)
        version = StateVersion(number, base, (), rows, 0, keys.json(), fingerprint, 0, self._clock())
        self._folder.save(version)
        return version

    def _remembered_schema(self, frame: DataFrame) -> StructType:
        return StructType([*self._key_schema(frame).fields, *_mark_schema(HASH, DIGEST).fields])

    def find(
        self, after: StateVersion, frame: DataFrame, fingerprint: str | None, *, digests: bool = False
    ) -> StateDifference | None:
        """What changed since a version; None if no row did. With `digests`, rows of equal hash are compared, too."""
        if self._key_schema(frame).json() != after.key_types or _is_crowded(after, hard=True):
            after = self.compact(after, self._key_schema(frame))
        number = self._folder.next_number()
        delta = f"delta-{number}"
        seen = Observation()
        now = self._columns(self._counted(frame, seen), digests=digests)
        with self._removing(delta):
            self._write(self._changed(now, self._hashed(after), frame, digests), delta)
            inserts, updates, deletes = counts = count_operations(self._folder, delta)
            rows = after.rows + inserts - deletes
            if _observed(seen) != (rows, 0) or self._repeats_inserts(delta, inserts):
                self._check_keys(frame)
        hash_compares, compared_at = (0, self._clock()) if digests else (after.hash_compares + 1, after.compared_at)
        if not any(counts):
            self._folder.remove(delta)
            stored = self._folder.load(after.number) or after
            self._folder.save(
                replace(stored, fingerprint=fingerprint, hash_compares=hash_compares, compared_at=compared_at)
            )
            return None
        looked = replace(after, fingerprint=fingerprint, hash_compares=hash_compares, compared_at=compared_at)
        delta_rows = after.delta_rows + sum(counts)
        version = replace(looked, number=number, deltas=(*after.deltas, delta), rows=rows, delta_rows=delta_rows)
        self._folder.save(version)
        return StateDifference(version, inserts, updates, deletes)

    def renumbered(self, number: int) -> StateVersion:
        """A new version with the rows of another: only columns have changed."""
        known = self._folder.load(number)
        assert known is not None, "a version is kept until a later one is durable"
        version = replace(known, number=self._folder.next_number())
        self._folder.save(version)
        return version

    def compact(self, version: StateVersion, keys: StructType | None = None) -> StateVersion:
        """The same version with all that is remembered in one base."""
        base = f"base-{self._folder.next_number()}"
        known = self._known(version)
        for index, field in enumerate(keys or ()):
            known = known.withColumn(_known_key(index), f.col(_known_key(index)).cast(field.dataType))
        self._write(known.toDF(*(f"k{i}" for i in range(len(self._key))), HASH, DIGEST), base)
        key_types = keys.json() if keys else version.key_types
        compacted = replace(version, base=base, deltas=(), delta_rows=0, key_types=key_types)
        self._folder.save(compacted)
        return compacted

    def compact_if_crowded(self, version: StateVersion) -> StateVersion:
        """For an idle moment: the next difference is the faster for it."""
        return self.compact(version) if _is_crowded(version) else version

    @contextmanager
    def _removing(self, name: str) -> Iterator[None]:
        """Remove a folder if the block fails: a bad table is polled many times."""
        try:
            yield
        except Exception:
            self._folder.remove(name)
            raise

    def _counted(self, frame: DataFrame, seen: Observation) -> DataFrame:
        """The table, its rows and null keys counted as they pass."""
        is_null = reduce(lambda one, other: one | other, (quoted(name).isNull() for name in self._key))
        return frame.observe(seen, f.count(f.lit(1)).alias("rows"), f.count_if(is_null).alias("nulls"))

    def _columns(self, frame: DataFrame, *, digests: bool) -> DataFrame:
        """The table with keys, values and marks by their place."""
        keys = [quoted(name).alias(f"k{i}") for i, name in enumerate(self._key)]
        values = [quoted(name).alias(f"r{i}") for i, name in enumerate(frame.columns)]
        beyond = [Value(fd.name, quoted(fd.name), fd.dataType) for fd in frame.schema if fd.name not in self._key]
        marks = [row_hash(beyond).alias(HASH)] + ([row_digest(beyond).alias(DIGEST)] if digests else [])
        return frame.select(*keys, *values, *marks)

    def _known(self, version: StateVersion) -> DataFrame:
        """What is remembered: the base without the keys of the deltas, and of each of these the last."""
        keys = StructType.fromJson(json.loads(version.key_types))
        names = [_known_key(index) for index in range(len(keys))]
        base = self._read(version.base, StructType([*keys.fields, *_mark_schema(HASH, DIGEST).fields]))
        base = base.toDF(*names, _KNOWN_HASH, _KNOWN_DIGEST)
        if not version.deltas:
            return base
        schema = StructType([*keys.fields, *_mark_schema(OPERATION, HASH, DIGEST).fields])
        overlay = self._last_of([self._read(delta, schema) for delta in version.deltas], keys.names)
        overlay = overlay.toDF(*names, OPERATION, _KNOWN_HASH, _KNOWN_DIGEST)
        touched = overlay.select(*names)
        touched = f.broadcast(touched) if version.delta_rows <= _FEW_ROWS else touched
        alive = overlay.where(f.col(OPERATION) != DELETE).drop(OPERATION)
        return base.join(touched, names, "left_anti").unionByName(alive)

    def _hashed(self, version: StateVersion) -> DataFrame:
        """What is remembered, for a hash join that need not sort the table, if one partition of it fits in memory."""
        known = self._known(version)
        rows_per_partition = version.rows / int(str(self.session.conf.get(_PARTITIONS)))
        return known.hint("shuffle_hash") if rows_per_partition <= _MOST_HASHED else known

    def _last_of(self, deltas: Sequence[DataFrame], keys: Sequence[str]) -> DataFrame:
        if len(deltas) == 1:
            return deltas[0]
        marks = (OPERATION, HASH, DIGEST)
        numbered = [delta.withColumn("turn", f.lit(turn)) for turn, delta in enumerate(deltas)]
        together = reduce(lambda one, other: one.unionByName(other), numbered)
        last = together.groupBy(*keys).agg(f.max_by(f.struct(*marks), "turn").alias("last"))
        return last.select(*keys, *(f.col(f"last.{mark}") for mark in marks))

    def _changed(self, now: DataFrame, known: DataFrame, frame: DataFrame, digests: bool) -> DataFrame:
        """Rows that are new, gone or another, with what to remember of them."""
        same_key = [now[f"k{i}"] == known[_known_key(i)] for i in range(len(self._key))]
        joined = now.join(known, same_key, "full_outer")
        is_new, is_gone = f.col(_KNOWN_HASH).isNull(), f.col(HASH).isNull()
        differs = is_new | is_gone | (f.col(HASH) != f.col(_KNOWN_HASH))
        if digests:
            differs = differs | (f.col(DIGEST) != f.col(_KNOWN_DIGEST))
        operation = f.when(is_new, INSERT).when(is_gone, DELETE).otherwise(UPDATE).cast("tinyint")
        keys = [f.coalesce(f"k{i}", _known_key(i)).alias(f"k{i}") for i in range(len(self._key))]
        values = [f.col(f"r{i}") for i in range(len(frame.columns))]
        named = zip(frame.schema.fields, values, strict=True)
        beyond = [Value(fd.name, column, fd.dataType) for fd, column in named if fd.name not in self._key]
        digest = f.col(DIGEST) if digests else row_digest(beyond).alias(DIGEST)
        return joined.where(differs).select(operation.alias(OPERATION), *keys, *values, HASH, digest)

    def _repeats_inserts(self, delta: str, inserts: int) -> bool:
        """Whether two inserted rows share a key: here if they are few, else by Spark."""
        if inserts < 2:
            return False
        names = [f"k{i}" for i in range(len(self._key))]
        if inserts > _FEW_ROWS:
            rows = self.session.read.parquet(self._folder.uri(delta)).where(f.col(OPERATION) == INSERT)
            return bool(rows.select(*names).distinct().count() != inserts)
        return count_distinct(self._folder, delta, names) != inserts

    def _check_keys(self, frame: DataFrame) -> None:
        if bad := bad_keys(frame, self._key):
            raise bad.error(self._table, self._key)

    def _key_schema(self, frame: DataFrame) -> StructType:
        return StructType([StructField(f"k{i}", frame.schema[name].dataType) for i, name in enumerate(self._key)])

    def _read(self, name: str, schema: StructType) -> DataFrame:
        return self.session.read.schema(schema).parquet(self._folder.uri(name))

    def _write(self, frame: DataFrame, name: str) -> None:
        frame.write.mode("overwrite").parquet(self._folder.uri(name))


def tuned(session: SparkSession) -> SparkSession:
    """A new session, whose settings do not affect others."""
    own = session.newSession()
    for key, value in _SETTINGS.items():
        own.conf.set(key, value)
    if (session.sparkContext.master or "").startswith("local") and own.conf.get(_PARTITIONS) == _SPARK_DEFAULT:
        own.conf.set(_PARTITIONS, str(4 * session.sparkContext.defaultParallelism))
    return own


def _is_crowded(version: StateVersion, *, hard: bool = False) -> bool:
    """Whether there are many deltas; `hard`: so many that compacting cannot wait for an idle moment."""
    allowed = (MOST_DELTAS, MOST_DELTA_SHARE * max(version.rows, _FEW_ROWS))
    factor = 4 if hard else 1
    return len(version.deltas) > factor * allowed[0] or version.delta_rows > factor * allowed[1]


def _known_key(index: int) -> str:
    return f"known_k{index}"


def _observed(seen: Observation) -> tuple[int, int] | None:
    """The counted rows and null keys; None if Spark did not run the count, as for an empty table."""
    try:
        counts = seen.get
    except Exception:
        return None
    return int(counts["rows"]), int(counts["nulls"])


def _mark_schema(*names: str) -> StructType:
    kinds: dict[str, DataType] = {OPERATION: ByteType(), HASH: LongType(), DIGEST: BinaryType()}
    return StructType([StructField(name, kinds[name]) for name in names])
