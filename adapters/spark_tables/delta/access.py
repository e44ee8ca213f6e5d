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

from adapters.spark_tables.delta.log import Commit
from adapters.spark_tables.rows.shape import Shape
from changesource_sdk import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Gap(Exception):
    """The feed does not lead on from here, and why."""


@dataclass(frozen=True, slots=True)
class Shares:
    """A version's rows in parts that tasks read without a session; `are_there` tells a later process whether they
    still can. All picklable.
    """

    parts: Sequence[Partition]
    are_there: Callable[[], bool]


class DeltaVersion(Protocol):
    """A table opened at a version."""

    @property
    def id(self) -> str:
        """The table's own id: another one if it was made anew."""

    @property
    def number(self) -> int:
        """The version."""

    @property
    def schema(self) -> str:
        """The columns, as Delta writes them."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""

    def unreadable_feed(self, commit: Commit | None = None) -> str:
        """Why the table's feed, or what one commit says, cannot be read; empty if it can."""

    def feed(self, number: int, predicate: str | None = None, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """The feed of a version up to this one, its rows in the columns of this one; all columns if none is named.

        What cannot be read is a `Gap`.
        """

    def frame(self, session: SparkSession, shape: Shape) -> DataFrame:
        """The rows, in the columns that travel."""

    def shares(self, shape: Shape) -> Shares | None:
        """The rows for tasks without a session; None if only a session reads them."""


class DeltaAccess(Protocol):
    """Reads one table. Raises `TableMissing` if it is not there."""

    def mark(self, number: int) -> str | None:
        """What tells a commit from another one of the same version; None if there is none. Cheap."""

    def commit(self, number: int) -> Commit | None:
        """A commit; None if there is none, yet or any more."""

    def open(self, number: int | None = None) -> DeltaVersion:
        """The table at a version, else at its newest, whatever was known of it before."""

    def moved_on(self, opened: DeltaVersion) -> DeltaVersion:
        """The newest version of a table that was not made anew since it was opened, at less cost."""
