"""Delta tables read by `deltalake`, without Spark's Delta jars and without a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from adapters.spark_tables.delta.access import DeltaVersion, Gap, VersionRows
from adapters.spark_tables.delta.log import DeltaCommit, DeltaLog
from adapters.spark_tables.delta.partitions import DeltaPartition, frame_of, has_all_files, partitions
from adapters.spark_tables.delta.table import configuration, maps_columns, open_table, reading
from adapters.spark_tables.rows.shape import Shape
from adapters.spark_tables.settings import TableSettings
from changesource_sdk import AdapterError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_READ_BY_ITS_KERNEL = frozenset({"columnMapping", "deletionVectors", "v2Checkpoint"})


class JarFreeVersion:
    """A table that `deltalake` has opened."""

    def __init__(self, table: TableSettings, delta: DeltaTable) -> None:
        self._table = table
        self._delta = delta
        # The partitions of a version, by its number; `_divided` replaces it.
        self._parts: tuple[int, list[DeltaPartition]] | None = None

    @property
    def id(self) -> str:
        """The table's own id."""
        return str(self._delta.metadata().id)

    @property
    def number(self) -> int:
        """The version."""
        return int(self._delta.version())

    @property
    def schema(self) -> str:
        """The columns, as Delta writes them."""
        return str(self._delta.schema().to_json())

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return configuration(self._delta)

    def shortcoming(self) -> str:
        """Why `deltalake` cannot read rows or feed; empty if it can read both."""
        beyond = self._unknown_features()
        return f"deltalake cannot read {', '.join(beyond)}" if beyond else self.unreadable_feed()

    def _unknown_features(self) -> list[str]:
        """The reader features that the table requires and `deltalake` does not list."""
        from deltalake.table import SUPPORTED_READER_FEATURES

        required = set(self._delta.protocol().reader_features or ())
        return sorted(required - _READ_BY_ITS_KERNEL - set(SUPPORTED_READER_FEATURES))

    def unreadable_feed(self, commit: DeltaCommit | None = None) -> str:
        """`deltalake` has no feed of mapped columns, and for deletion vectors only whole files."""
        if commit is not None and commit.has_vectors and not commit.has_feed:
            return f"version {commit.version} lists files and not rows"
        return "the feed cannot be read where columns are mapped" if maps_columns(self._delta) else ""

    def feed(self, number: int, predicate: str | None = None, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The feed of one version."""
        from deltalake.exceptions import DeltaError

        try:
            stream = self._delta.load_cdf(number, number, columns=list(columns) or None, predicate=predicate)
            yield from pa.RecordBatchReader.from_stream(stream)
        except (DeltaError, pa.ArrowInvalid, OSError) as error:
            raise Gap(f"version {number} cannot be read: {str(error).splitlines()[0]}") from error

    def frame(self, session: SparkSession, shape: Shape) -> DataFrame:
        """The rows; each partition is read by a task."""
        return frame_of(session, shape, self._divided(shape))

    def divided_rows(self, shape: Shape) -> VersionRows:
        """The rows in partitions by files or keys."""
        return VersionRows(self._divided(shape), partial(_are_there, self._table, self.id, self.number))

    def _divided(self, shape: Shape) -> list[DeltaPartition]:
        """The partitions of the version, made once, since that reads the metadata of every file."""
        if self._parts is None or self._parts[0] != self.number:
            if self._unknown_features():
                # Planning a read raises for unsupported features: here, and not in a task with a stack trace.
                with reading(self._table):
                    self._delta.scan()
            self._parts = self.number, partitions(self._table, self._delta, shape)
        return self._parts[1]

    def moved_on(self) -> JarFreeVersion:
        """The newest version: reads the commits since, not all files of the table."""
        with reading(self._table):
            self._delta.update_incremental()
        return self


def _are_there(table: TableSettings, made_as: str, number: int) -> bool:
    """Whether a version of the table with this id, and all its data files, still exist."""
    try:
        delta = open_table(table, number)
    except AdapterError:
        return False
    return str(delta.metadata().id) == made_as and has_all_files(table, delta)


class JarFreeAccess:
    """Reads one table by `deltalake`."""

    def __init__(self, table: TableSettings) -> None:
        self._table = table
        self._log = DeltaLog(table.location, table.options)

    def mark(self, number: int) -> str | None:
        """See `DeltaAccess.mark`."""
        return self._log.mark(number)

    def commit(self, number: int) -> DeltaCommit | None:
        """A commit."""
        return self._log.read(number)

    def open(self, number: int | None = None) -> JarFreeVersion:
        """The table at a version, or at its newest."""
        return JarFreeVersion(self._table, open_table(self._table, number))

    def moved_on(self, opened: DeltaVersion) -> JarFreeVersion:
        """The newest version."""
        return opened.moved_on() if isinstance(opened, JarFreeVersion) else self.open()
