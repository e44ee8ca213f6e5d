"""The adapter contract: everything that an author implements.

An adapter declares its tables, takes one consistent snapshot of them, and yields the transactions after a position. It
needs to know nothing of watermarks, the log, frames or consumers. It is created from its settings (keyword arguments),
is picklable, and may be created again at any time: after a failure, in another process, on another machine.

The pipeline guarantees: `changes(after)` gets the position of the last transaction that is durable in the log (or the
snapshot's); a transaction that is yielded twice is stored once; `acknowledge` is called only after the log is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from changesource_sdk.errors import ChangesourceError, InvalidChange
from changesource_sdk.positions import Position
from changesource_sdk.schema import Column, Index, JsonText, Table

__all__ = [
    "Adapter",
    "AddColumn",
    "AlterColumn",
    "BadRow",
    "Change",
    "Check",
    "Column",
    "CreateIndex",
    "CreateTable",
    "Delete",
    "DropColumn",
    "DropIndex",
    "DropTable",
    "ExplainingPartition",
    "Index",
    "Insert",
    "JsonPartition",
    "JsonText",
    "Partition",
    "Position",
    "RenameTable",
    "Row",
    "RowsPartition",
    "SchemaChange",
    "Snapshot",
    "Table",
    "Transaction",
    "Truncate",
    "Update",
    "UsingTables",
]

Row: TypeAlias = Mapping[str, object]
"""Column names to Python values; `pipeline.encoding.normalize` says which values suit which column."""


@dataclass(frozen=True, slots=True)
class Insert:
    """A complete new row. It replaces a row with the same key or the same value of another unique index."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    """The row after the update. `old_key` is required when key columns changed; omitted columns keep their value."""

    table: str
    row: Row
    old_key: Row | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """The row with this key was deleted; other columns of `key` are ignored."""

    table: str
    key: Row


@dataclass(frozen=True, slots=True)
class BadRow:
    """A version of a row that the adapter cannot read, in place of the change that would have brought it.

    `key` and `old_key` are as in `Update`: the row's key, and the one it had before if that was another. `error` says
    what is wrong. The pipeline does with it what `on-bad-value` says: it stops with `error`, or removes the row from
    consumers and lists it as a dead letter. A partition may give it in place of a row.
    """

    table: str
    key: Row
    old_key: Row | None
    error: ChangesourceError


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of these tables were deleted."""

    tables: Sequence[str]


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new, empty table with its key and indexes."""

    table: Table


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table was dropped, with its rows and indexes."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameTable:
    """A table has a new name, or moved to another schema; its indexes keep their names."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column; existing rows get its default or null. Other values need updates in the same transaction."""

    table: str
    column: Column


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column was dropped; indexes that use it must be dropped before."""

    table: str
    name: str


@dataclass(frozen=True, slots=True)
class AlterColumn:
    """A column was renamed, or changed type or nullability, or several of these."""

    table: str
    old_name: str
    column: Column


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """A new index; `index.table` names its table."""

    index: Index


@dataclass(frozen=True, slots=True)
class DropIndex:
    """An index was dropped: its name, or `schema.name`."""

    name: str


SchemaChange: TypeAlias = (
    CreateTable | DropTable | RenameTable | AddColumn | DropColumn | AlterColumn | CreateIndex | DropIndex
)
Change: TypeAlias = Insert | Update | Delete | Truncate | BadRow | SchemaChange


@dataclass(frozen=True, slots=True)
class Transaction:
    """An atomic group of changes, in order.

    `position` is unique to this transaction: `changes(position)` continues right after it. Positions that are plain
    integers must increase. `changes` may be a generator, read once and never kept in memory as a whole, so a
    transaction can be larger than memory. `commit_time_ms` (epoch) feeds the lag metrics. `watermark` is for upstreams
    whose positions are ordered versions themselves: a LexiVersion whose major number is above all earlier ones.
    `explain` is called when the change that `changes` yielded last is refused: it returns a better error, which says
    where in the upstream that change is.
    """

    position: Position
    changes: Iterable[Change]
    commit_time_ms: float | None = None
    watermark: str | None = None
    explain: Callable[[InvalidChange], ChangesourceError] | None = None


@runtime_checkable
class Partition(Protocol):
    """Some rows of one table in a snapshot; picklable, and readable more than once with the same result."""

    @property
    def table(self) -> str:
        """The table's full name."""

    def rows(self) -> Iterable[Row]:
        """The rows, in any order. A `BadRow` may be in place of one that cannot be read; the type leaves it out, since
        most partitions have none.
        """


@runtime_checkable
class JsonPartition(Partition, Protocol):
    """A partition that writes its rows as JSON itself, if that is much faster than converting values.

    It guarantees that every object has all columns of the table in declared order, each as
    `pipeline.encoding.normalize` would write it; nothing is validated again. `rows` must return the same rows.
    """

    def json_rows(self, checked: Callable[[Row], bytes]) -> Iterable[Sequence[bytes]]:
        """JSON objects in batches; `checked` validates and encodes a row that the partition cannot guarantee."""


@runtime_checkable
class ExplainingPartition(Partition, Protocol):
    """A partition that can say where in the upstream a refused row is, as `Transaction.explain` does."""

    def explain(self, error: InvalidChange, is_refused: Callable[[Row], bool]) -> ChangesourceError:
        """A better error for the row for which `is_refused` is true. May read the rows again to find it."""


@dataclass(frozen=True, slots=True)
class RowsPartition:
    """A partition with its rows in memory, for small data."""

    table: str
    row_list: Sequence[Row]

    def rows(self) -> Iterable[Row]:
        return self.row_list


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent state: every partition has the rows of the upstream exactly at `position`.

    `tables` overrides `Adapter.tables()` where the schema must be read with the data. `close` is called when all rows
    were read or reading failed. `watermark` is for upstreams that also set `Transaction.watermark`.

    `can_resume` is for a snapshot that outlives the process that took it: called later, in another process, it returns
    whether every partition can still be read with the same result. Partitions, `close` and `can_resume` itself must
    then be picklable. Without it an interrupted snapshot starts over.
    """

    position: Position
    partitions: Sequence[Partition]
    tables: Sequence[Table] | None = None
    close: Callable[[], None] | None = None
    watermark: str | None = None
    can_resume: Callable[[], bool] | None = None


class Adapter(Protocol):
    """Reads one upstream. `UsingTables`, `Acknowledging`, `Closing`, `Examining`, `Publishing`, `ReportingHead` and
    `UsingSpark` are optional.

    An attribute `poll_interval` (seconds, default 0.05) sets how soon `changes` is called again after it returned
    without a transaction; after one it is called at once.
    """

    def tables(self) -> Sequence[Table]:
        """The tables to sync, in their current form."""

    def snapshot(self) -> Snapshot:
        """One consistent state and the position at which the transactions after it begin."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        """Complete transactions after `after`, in commit order. May block for more, or return when there is none."""


@runtime_checkable
class UsingTables(Protocol):
    """An adapter that reads a log, whose entries must be read with the tables of their time, not with today's.

    A log that holds values without column names, or only the numbers of tables and columns, can be read in no other
    way once the schema has changed after the entry was written.
    """

    def use_tables(self, tables: Sequence[Table]) -> None:
        """Called before every `changes(after)`, in its thread: the adapter's tables as they were at `after`.

        They are those of `tables()` or `Snapshot.tables` when the snapshot was taken, with every schema change up to
        and including the transaction at `after`; column defaults are left out. Mappings do not show in them. The log
        keeps them, so they are right after a restart, however much the upstream has changed since.
        """


@runtime_checkable
class Acknowledging(Protocol):
    """An adapter whose upstream may discard what the log has."""

    def acknowledge(self, position: Position) -> None:
        """Everything up to `position` is durable in the log. Called from another thread than `changes` runs in."""


@dataclass(frozen=True, slots=True)
class Check:
    """One result of `changesource doctor`. One that is not ok has a fix; one that is ok and has a fix is a warning."""

    name: str
    ok: bool
    message: str
    fix: str = ""


@runtime_checkable
class Examining(Protocol):
    """An adapter that can check its upstream, for `changesource doctor`. Must not change the upstream."""

    def examine(self) -> Iterable[Check]:
        """All checks, also those that pass."""


@runtime_checkable
class Publishing(Protocol):
    """An adapter that follows named publications; a consumer that requests others is refused."""

    @property
    def publications(self) -> frozenset[str]:
        """The names that a consumer may request."""


@runtime_checkable
class UsingSpark(Protocol):
    """An adapter whose `changes` runs Spark jobs: it runs in Spark's driver, not in a task or another process.

    `SparkSession.builder.getOrCreate()` is the pipeline's session there.
    """

    @property
    def uses_spark(self) -> bool:
        """Whether it does with its settings."""


@runtime_checkable
class ReportingHead(Protocol):
    """An adapter that can say how far the upstream is, so that the log's distance to it is known.

    `head` is called every few seconds, in a thread of its own, while `changes` runs in another: it must be cheap, may
    block and may raise. If positions are integers, their difference is the distance; otherwise define
    `distance(position, head)` as well.
    """

    def head(self) -> Position:
        """The position that the log has once it has everything that the upstream has now."""


@runtime_checkable
class MeasuringDistance(Protocol):
    """An adapter that reports its head, with positions that are no integers."""

    def distance(self, position: Position, head: Position) -> int | None:
        """How many records, commits or bytes are after `position` up to `head`; 0 if none, None if unknown."""


@runtime_checkable
class Closing(Protocol):
    """An adapter that holds connections."""

    def close(self) -> None:
        """Close everything and make a blocked `changes` return. Called from any thread, possibly twice."""
