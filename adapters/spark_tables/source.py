"""What the adapter asks of one table, however it finds out what changed.

A source knows its versions by tokens, JSON values of its own making. A token is part of the adapter's position: it
comes back after a restart, in another process, and must then say all that is needed to go on; what is too large for it
lies in the state folder under a name that the token carries, and stays there until a later token is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from changesource_sdk import AdapterError, Change, Check, Partition, Position, Table

Token = Position


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One table at one version: every partition shows it exactly at `token`, as often as it is read.

    `can_resume` tells a later process whether that still holds. It, `close` and the partitions are picklable.
    """

    token: Token
    table: Table
    partitions: Sequence[Partition]
    can_resume: Callable[[], bool]
    close: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What one version changed: schema changes first, then rows. Never empty.

    `changes` is read once, before the source is asked for its next version or at any time later. `commit_time_ms`
    (epoch) orders versions of different tables.
    """

    token: Token
    changes: Iterable[Change]
    commit_time_ms: float


class TableSource(Protocol):
    """One table. Methods are called from one thread at a time, but `acknowledge` from another."""

    @property
    def takes_jobs(self) -> bool:
        """Whether the next look is expected to take jobs of Spark: seconds, where others take milliseconds."""

    def table(self) -> Table:
        """The table as it is now. Raises `TableMissing` if there is none."""

    def snapshot(self) -> TableSnapshot:
        """The newest version, whole."""

    def poll(self, after: Token) -> Iterator[TableVersion]:
        """Versions after a token, in order, as far as there are any now. Cheap if there are none.

        Raises `TableMissing` if there is no table, and `ResyncRequired` if the token means nothing to it.
        """

    def acknowledge(self, token: Token) -> None:
        """The log holds everything up to here: what earlier tokens need may go."""

    def examine(self) -> Iterable[Check]:
        """What stands in the way of syncing the table, good findings too."""


class TableMissing(AdapterError):
    """The table is not there, now: it was never made, was dropped, or will be made again."""


def missing(name: str, location: str) -> TableMissing:
    """The error for a table that is not there."""
    return TableMissing(
        "table-missing",
        f"there is no table at {location}",
        where=f"table {name}",
        fix="correct the location, or create the table; it is looked for again by itself",
    )
