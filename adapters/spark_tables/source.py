"""The contract of a table's source, however it finds changes.

A source identifies its versions by positions, JSON values that it defines. They are part of the adapter's position.
After a restart, in another process, a position must be enough to continue. What is too large for it is in the state
folder, under a name in the position, until a later position is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from changesource_sdk import AdapterError, Change, Check, Partition, Position, Table

TablePosition = Position
"""The position of one table, as its source defines it."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One table at one version. Every partition has its rows exactly at `position`, however often it is read.

    `can_resume` says in a later process whether that is still so. It, `close` and the partitions are picklable.
    """

    position: TablePosition
    table: Table
    partitions: Sequence[Partition]
    can_resume: Callable[[], bool]
    close: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The changes of one version: schema changes first, then rows. Never empty.

    `changes` is read once, before or after the source's next version is requested. `commit_time_ms`
    (epoch) orders versions of different tables.
    """

    position: TablePosition
    changes: Iterable[Change]
    commit_time_ms: float


class TableSource(Protocol):
    """One table. Methods are called from one thread at a time, except `acknowledge`, which another thread calls."""

    @property
    def takes_jobs(self) -> bool:
        """Whether the next poll probably needs Spark jobs: seconds instead of milliseconds."""

    def table(self) -> Table:
        """The current table. Raises `TableMissing` if it does not exist."""

    def snapshot(self) -> TableSnapshot:
        """All rows of the newest version."""

    def poll(self, after: TablePosition) -> Iterator[TableVersion]:
        """The present versions after a position, in order. Cheap if there are none.

        Raises `TableMissing` if there is no table, and `ResyncRequired` if the position cannot be resumed.
        """

    def acknowledge(self, position: TablePosition) -> None:
        """The log has everything up to here: what only earlier positions need may be deleted."""

    def examine(self) -> Iterable[Check]:
        """The checks of `changesource doctor` for this table."""


class TableMissing(AdapterError):
    """The table does not exist at present: it was never created, was dropped, or is being replaced."""


def missing(name: str, location: str) -> TableMissing:
    """The error for a table that does not exist."""
    return TableMissing(
        "table-missing",
        f"there is no table at {location}",
        where=f"table {name}",
        fix="correct the location, or create the table; it is looked for again by itself",
    )
