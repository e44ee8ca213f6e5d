"""Delta tables read by the Delta of the Spark session: `delta-spark`, with its jars, extension and catalog.

It reads what `deltalake` does not: the feed of mapped columns and of deletion vectors, widened types, and what newer
versions add. Each version with changed rows costs a Spark job. Its readers need a session, so a snapshot reads a copy
of the version.

Storage is accessed by the session, with its credentials.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from adapters.spark_tables.delta import feed as delta_feed
from adapters.spark_tables.delta.access import DeltaVersion, Gap
from adapters.spark_tables.delta.log import DeltaCommit, commit_path, read_commit
from adapters.spark_tables.difference.compute import tuned
from adapters.spark_tables.readers.contract import reading
from adapters.spark_tables.rows.row_hash import quoted
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import missing
from adapters.spark_tables.types import travelling
from changesource_sdk import AdapterError, ConfigurationError
from changesource_sdk.toolkit import spark_session as running_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_LOG_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"


def has_delta(session: SparkSession) -> bool:
    """Whether a session can read Delta tables: it has the jars and the extension."""
    jvm: Any = session.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    is_loaded = loader.getResource(f"{EXTENSION.replace('.', '/')}.class") is not None
    return is_loaded and EXTENSION in str(session.conf.get("spark.sql.extensions", ""))


def require_delta(session: SparkSession, table: TableSettings) -> None:
    """Raise `ConfigurationError` for a session that cannot read Delta tables."""
    if not has_delta(session):
        fix = (
            f"add --runner spark --conf spark.jars.packages={PACKAGE} --conf spark.sql.extensions={EXTENSION} "
            f"--conf spark.sql.catalog.spark_catalog={CATALOG}, with pyspark 4.2.0 (delta-spark 4.4 knows none that is "
            "newer); or let deltalake read the table: delta_reader = 'deltalake'"
        )
        where = f"tables.{table.name}.delta_reader"
        raise ConfigurationError("delta-missing", f"Spark {session.version} was started without Delta", where, fix)


class SparkVersion:
    """A table at a version. Its metadata is read when it is first needed."""

    def __init__(self, access: SparkAccess, number: int, snapshot: Any = None) -> None:
        self._access = access
        self._snapshot = snapshot
        self._held: tuple[int, pa.Table] | None = None  # the first rows of a version's feed; see `_first_rows`
        self.number = number

    @cached_property
    def _metadata(self) -> Any:
        with reading(self._access.table):
            return (self._snapshot or self._access.snapshot(self.number)).metadata()

    @property
    def id(self) -> str:
        """The table's own id."""
        return str(self._metadata.id())

    @property
    def schema(self) -> str:
        """The columns, as Delta writes them."""
        return str(self._metadata.schemaString())

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        converters = self._access.jvm.scala.jdk.javaapi.CollectionConverters
        return dict(converters.asJava(self._metadata.configuration()))

    def unreadable_feed(self, commit: DeltaCommit | None = None) -> str:
        """Delta reads its own feeds."""
        return ""

    def feed(self, number: int, predicate: str | None = None, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The feed of one version. A small one is read once and kept in memory."""
        try:
            with reading(self._access.table):
                yield from self._read_feed(number, predicate, columns)
        except AdapterError as error:
            raise Gap(f"version {number} cannot be read: {error.message}") from error

    def _read_feed(self, number: int, predicate: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        frame = self._feed_frame(number)
        if predicate is not None:
            yield from streamed(frame.where(predicate))
        elif columns and self._first_rows(number, frame).num_rows > delta_feed.MOST_HELD:
            yield from streamed(frame.select(*map(quoted, columns)))
        else:
            yield from self._first_rows(number, frame).to_batches()

    def _feed_frame(self, number: int) -> DataFrame:
        """The feed of a version in its own columns: Delta may return it with the columns of a later version."""
        frame = self._access.feed(number)
        columns = [_as_was(frame, field) for field in StructType.fromJson(json.loads(self.schema)).fields]
        return travelling(frame.select(*columns, delta_feed.CHANGE_TYPE))

    def _first_rows(self, number: int, frame: DataFrame) -> pa.Table:
        """All rows of a small feed, or one more than `MOST_HELD` of a large one."""
        if self._held is None or self._held[0] != number:
            self._held = number, frame.limit(delta_feed.MOST_HELD + 1).toArrow()
        return self._held[1]

    def frame(self, session: SparkSession, shape: Shape) -> DataFrame:
        """The rows."""
        with reading(self._access.table):
            rows = session.read.format("delta").option("versionAsOf", self.number).load(self._access.table.location)
            return travelling(rows).select(*(quoted(field.name) for field in shape.fields))

    def divided_rows(self, shape: Shape) -> None:
        """None: only a session can read them."""
        return


class SparkAccess:
    """Reads one table by the session's Delta."""

    def __init__(self, table: TableSettings) -> None:
        self.table = table

    @cached_property
    def _session(self) -> SparkSession:
        running = running_session()
        require_delta(running, self.table)
        own = tuned(running)
        if (running.sparkContext.master or "").startswith("local") and not own.conf.get(_LOG_PARTITIONS, ""):
            # Delta's default (50) is for the log of a huge table on a cluster.
            own.conf.set(_LOG_PARTITIONS, str(running.sparkContext.defaultParallelism))
        return own

    @property
    def jvm(self) -> Any:
        return self._session.sparkContext._jvm

    def mark(self, number: int) -> str | None:
        """The time and size of a commit's file."""
        with reading(self.table):
            path, files = self._commit_file(number)
            if not files.exists(path):
                return None
            status = files.getFileStatus(path)
            return f"{status.getModificationTime()}-{status.getLen()}"

    def commit(self, number: int) -> DeltaCommit | None:
        with reading(self.table):
            path, files = self._commit_file(number)
            if not files.exists(path):
                return None
            stream = files.open(path)
            try:
                return read_commit(number, bytes(self.jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray(stream)))
            finally:
                stream.close()

    def _commit_file(self, number: int) -> tuple[Any, Any]:
        path = self.jvm.org.apache.hadoop.fs.Path(f"{self.table.location}/{commit_path(number)}")
        return path, path.getFileSystem(self._session.sparkContext._jsc.hadoopConfiguration())

    def open(self, number: int | None = None) -> SparkVersion:
        """The table at a version, or at its newest."""
        if number is not None:
            return SparkVersion(self, number)
        # Delta's cache outlives the table: without this, a table that was created again would show its old versions.
        self._log.invalidateCache(self._session._jsparkSession, self.jvm.org.apache.hadoop.fs.Path(self.table.location))
        return self.moved_on()

    def moved_on(self, opened: DeltaVersion | None = None) -> SparkVersion:
        """The newest version."""
        with reading(self.table):
            newest = self._opened()._2()
            number = int(newest.version())
        if number < 0:
            raise missing(self.table.name, self.table.location)
        return SparkVersion(self, number, newest)

    def snapshot(self, number: int) -> Any:
        """Delta's snapshot of the table at a version."""
        log = self._opened()._1()
        names = {method.getName() for method in log.getClass().getMethods()}
        others = [
            name
            for number_of_argument in range(2, 9)
            if (name := f"getSnapshotAt$default${number_of_argument}") in names
        ]
        return log.getSnapshotAt(number, *(getattr(log, name)() for name in others))

    def feed(self, number: int) -> DataFrame:
        """The feed of a version."""
        options = {"readChangeFeed": "true", "startingVersion": str(number), "endingVersion": str(number)}
        return self._session.read.format("delta").options(**options).load(self.table.location)

    @property
    def _log(self) -> Any:
        return self.jvm.org.apache.spark.sql.delta.DeltaLog

    def _opened(self) -> Any:
        """The table's log and its newest version."""
        return self._log.forTableWithSnapshot(self._session._jsparkSession, self.table.location)


def _as_was(frame: DataFrame, field: StructField) -> Column:
    column = quoted(field.name)
    is_same = field.name in frame.columns and frame.schema[field.name].dataType == field.dataType
    return column if is_same else column.cast(field.dataType).alias(field.name)


def streamed(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows of a frame, a partition at a time: they need not fit in the driver's memory."""

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            buffer = pa.BufferOutputStream()
            with pa.ipc.new_stream(buffer, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch([pa.array([buffer.getvalue().to_pybytes()], pa.binary())], ["batch"])

    for row in frame.mapInArrow(packed, "batch binary").toLocalIterator():
        yield from pa.ipc.open_stream(row["batch"])
