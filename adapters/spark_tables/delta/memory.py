"""What is remembered of a Delta table in case its feed breaks off: hashes of a base version, and keys touched since.

As long as the feed goes on this costs one small file per version, and no Spark. If versions are missing from the feed
(cleaned up, vacuumed, never written), Spark compares the table with the base: rows touched since count as changed,
others by their hash. What comes out is the difference, and the next base.

Where Spark does not run (the inline runner), no base is taken beforehand. The table's own former version serves as one
then, as long as its files are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from adapters.spark_tables.delta.touched import TouchedKeys
from adapters.spark_tables.difference.changed_rows import RowsShare, changes_of, shares_of
from adapters.spark_tables.difference.compute import Difference, tuned
from adapters.spark_tables.difference.files import DIGEST, HASH
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from adapters.spark_tables.readers.contract import reading
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.versions import lost
from changesource_sdk import Change
from changesource_sdk.toolkit import has_spark_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_BASE = 0


@dataclass(frozen=True, slots=True)
class Differing:
    """A difference; what it leads to is remembered as `number`."""

    number: int
    changes: Iterable[Change]


class DeltaMemory:
    """Bases by their number, each with the keys touched at later versions of the table."""

    def __init__(self, table: TableSettings, folder: str) -> None:
        self.folder = folder
        self._table = table
        self._folder = StateFolder(folder)
        self._touched = TouchedKeys(folder, table.key)
        self._tuned: SparkSession | None = None
        self._forgotten = 0

    @property
    def session(self) -> SparkSession:
        """The session to make frames with."""
        if self._tuned is None:
            self._tuned = tuned(spark_session())
        return self._tuned

    def begin(self, frame: Callable[[], DataFrame]) -> int:
        """Remember every row of a frame, if Spark runs."""
        return self._difference().remember(frame(), None).number if has_spark_session() else NO_BASE

    def copy(self, frame: DataFrame, shape: Shape) -> tuple[int, list[RowsShare]]:
        """Remember every row of a frame, and keep a copy of them: its shares."""
        with reading(self._table):
            version = self._difference().begin(frame, None)
        return version.number, shares_of(self._folder, version, shape)

    def touch(self, number: int, version: int, feed: Iterable[pa.RecordBatch]) -> None:
        """Remember which keys a version touched."""
        if number != NO_BASE:
            self._touched.add(number, version, feed)

    def base(self, number: int, version: int, former: Callable[[], DataFrame]) -> StateVersion:
        """What is known of the rows at a version: a base and what was touched since, or the former rows themselves."""
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
        """What leads from a base to a frame."""
        due = bool(self._table.full_compare) and base.looks >= self._table.full_compare
        with reading(self._table):
            found = self._difference().find(base, frame, None, digests=rewritten or due)
        if found is None:
            return Differing(base.number, ())
        return Differing(found.version.number, changes_of(self._folder, found.version, shape))

    def forget_before(self, number: int, version: int) -> None:
        """A position of this base and version is durable."""
        if number != self._forgotten:
            self._folder.forget_before(number)
            self._touched.forget_before(number)
            self._forgotten = number
        self._touched.merge(number, version)

    def _difference(self) -> Difference:
        return Difference(self.session, self._folder, self._table.name, self._table.key)

    def _with_touched(self, known: StateVersion, version: int) -> StateVersion:
        """The base overlaid by the touched keys, as one more delta; a hash that no row has makes them differ."""
        found = self._touched.up_to(known.number, version)
        if found is None:
            return known
        keys, net = found
        rows = keys.append_column(HASH, pa.array([0] * len(keys), pa.int64()))
        rows = rows.append_column(DIGEST, pa.array([b""] * len(keys), pa.binary()))
        name = f"delta-{self._folder.next_number()}"
        files, path = fs.FileSystem.from_uri(self._folder.uri(name))
        files.create_dir(path, recursive=True)
        pq.write_table(rows, f"{path}/touched.parquet", filesystem=files)
        deltas, delta_rows = (*known.deltas, name), known.delta_rows + len(keys)
        return replace(known, deltas=deltas, rows=known.rows + net, delta_rows=delta_rows)
