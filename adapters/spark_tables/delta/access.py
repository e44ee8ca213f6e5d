"""The contract of a Delta reader: a table's commits, its versions, their change feed and their rows.

Two read Delta tables: `delta.jar_free` by `deltalake`, without a session, and `delta.spark` by the Delta that a user's
Spark session has. `delta.choice` says which. Everything above (order, images, schema changes, gaps) is in
`delta.source`, once. Both readers accept the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from adapters.spark_tables.delta.log import DeltaCommit
from adapters.spark_tables.rows.shape import Shape
from changesource_sdk import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Gap(Exception):
    """Why the feed cannot be followed from a version on."""


@dataclass(frozen=True, slots=True)
class VersionRows:
    """A version's rows in partitions that tasks read without a session. All picklable.

    `are_there` says in a later process whether they can still be read.
    """

    parts: Sequence[Partition]
    are_there: Callable[[], bool]


class DeltaVersion(Protocol):
    """A table opened at a version."""

    @property
    def id(self) -> str:
        """The table's own id; a table that was created again has another."""

    @property
    def number(self) -> int:
        """The version."""

    @property
    def schema(self) -> str:
        """The columns, as Delta writes them."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""

    def unreadable_feed(self, commit: DeltaCommit | None = None) -> str:
        """Why the table's feed, or what one commit says, cannot be read; empty if it can."""

    def feed(self, number: int, predicate: str | None = None, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The feed of a version up to this one, its rows in the columns of this one; all columns if none is named.

        What cannot be read is a `Gap`.
        """

    def frame(self, session: SparkSession, shape: Shape) -> DataFrame:
        """The rows, in the columns that are synced."""

    def divided_rows(self, shape: Shape) -> VersionRows | None:
        """The rows for tasks without a session; None if only a session can read them."""


class DeltaAccess(Protocol):
    """Reads one table. Raises `TableMissing` if it does not exist."""

    def mark(self, number: int) -> str | None:
        """Time and size of a commit's file, which distinguish it from another commit of the same version. Cheap.

        None if there is no such commit. A table that was created again has other commits under the same numbers.
        """

    def commit(self, number: int) -> DeltaCommit | None:
        """A commit; None if it does not exist yet, or was cleaned up."""

    def open(self, number: int | None = None) -> DeltaVersion:
        """The table at a version, or at its newest; ignores all caches."""

    def moved_on(self, opened: DeltaVersion) -> DeltaVersion:
        """The newest version, cheaper than `open`; the table must not have been created again since it was opened."""
