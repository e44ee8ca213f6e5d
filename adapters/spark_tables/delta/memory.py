"""What is remembered of a Delta table in case its feed has a gap: hashes of a base version, and keys touched since.

While the feed works, this costs one small file per version and no Spark job. If versions are missing from the feed
(cleaned up, vacuumed, never written), Spark compares the table with the base: rows touched since count as changed, the
others are compared by hash. The result is the difference, and the next base.

Without Spark (the inline runner) no base is written beforehand. Then the table's own earlier version is the base, as
long as its files exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from adapters.spark_tables.delta.touched import TouchedKeys
from adapters.spark_tables.difference.changed_rows import CopyPartition, changes_of, partitions_of
from adapters.spark_tables.difference.compute import TableDifference, tuned
from adapters.spark_tables.difference.files import DIGEST, HASH
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from adapters.spark_tables.position import lost
from adapters.spark_tables.readers.contract import reading
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.settings import TableSettings
from changesource_sdk import Change
from changesource_sdk.toolkit import has_spark_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_BASE = 0


@dataclass(frozen=True, slots=True)
class Differing:
    """A difference; the state after it is remembered as `number`."""

    number: int
    changes: Iterable[Change]


class DeltaMemory:
    """Bases by their number, each with the keys touched at later versions of the table."""

    def __init__(self, table: TableSettings, folder: str) -> None:
        self.folder = folder
        self._table = table
        self._folder = StateFolder(folder)
        self._touched = TouchedKeys(folder, table.key)
        self._tuned: SparkSession | None = None  # made by `session` when it is first needed
        self._forgotten = 0  # bases before this number are deleted; written by the acknowledging thread

    @property
    def session(self) -> SparkSession:
        """The session to make frames with."""
        if self._tuned is None:
            self._tuned = tuned(spark_session())
        return self._tuned

    def begin(self, frame: Callable[[], DataFrame]) -> int:
        """Remember every row of a frame, if Spark runs."""
        return self._difference().remember(frame(), None).number if has_spark_session() else NO_BASE

    def copy(self, frame: DataFrame, shape: Shape) -> tuple[int, list[CopyPartition]]:
        """Remember every row of a frame, and write a copy of the rows; returns its partitions."""
        with reading(self._table):
            version = self._difference().begin(frame, None)
        return version.number, partitions_of(self._folder, version, shape)

    def touch(self, number: int, version: int, feed: Iterable[pa.RecordBatch]) -> None:
        """Remember which keys a version touched."""
        if number != NO_BASE:
            self._touched.add(number, version, feed)

    def base(self, number: int, version: int, former: Callable[[], DataFrame]) -> StateVersion:
        """The remembered rows at a version: a base and the keys touched since, or the earlier version itself."""
        if number == NO_BASE:
            try:
                return self._difference().remember(former(), None)
            except Exception as error:
                raise lost(f"version {version} cannot be read any more", self._table.where) from error
        known = self._folder.load(number)
        if known is None:
            raise lost("what was remembered of the table is gone", self._table.where)
        return self._with_touched(known, version)

    def difference(self, base: StateVersion, shape: Shape, frame: DataFrame, *, rewritten: bool) -> Differing:
        """The difference from a base to a frame."""
        due = bool(self._table.full_compare) and base.hash_compares >= self._table.full_compare
        with reading(self._table):
            difference = self._difference().find(base, frame, None, digests=rewritten or due)
        if difference is None:
            return Differing(base.number, ())
        return Differing(difference.version.number, changes_of(self._folder, difference.version, shape))

    def forget_before(self, number: int, version: int) -> None:
        """A position of this base and version is durable."""
        if number != self._forgotten:
            self._folder.forget_before(number)
            self._touched.forget_before(number)
            self._forgotten = number
        self._touched.merge(number, version)

    def _difference(self) -> TableDifference:
        return TableDifference(self.session, self._folder, self._table.name, self._table.key)

    def _with_touched(self, known: StateVersion, version: int) -> StateVersion:
        """The base with the touched keys as one more delta, whose empty digest makes these rows differ."""
        touched = self._touched.up_to(known.number, version)
        if touched is None:
            return known
        keys, net = touched
        rows = keys.append_column(HASH, pa.array([0] * len(keys), pa.int64()))
        rows = rows.append_column(DIGEST, pa.array([b""] * len(keys), pa.binary()))
        name = f"delta-{self._folder.next_number()}"
        files, path = fs.FileSystem.from_uri(self._folder.uri(name))
        files.create_dir(path, recursive=True)
        pq.write_table(rows, f"{path}/touched.parquet", filesystem=files)
        deltas, delta_rows = (*known.deltas, name), known.delta_rows + len(keys)
        return replace(known, deltas=deltas, rows=known.rows + net, delta_rows=delta_rows)
