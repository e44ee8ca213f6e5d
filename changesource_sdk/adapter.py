"""The contract between a store and the rest: all that an author implements.

An adapter says which tables there are, gives one consistent snapshot of them, and yields the transactions that follow a
position. It knows nothing of watermarks, the log, frames or consumers. It is created from its settings (keyword
arguments), is picklable, and may be created anew at any time: after a failure, in another process, on another machine.

What the runner promises in return: `changes(after)` gets the position of the last transaction that is durable in
the log (or the snapshot's); a transaction given twice is stored once; `acknowledge` comes only after the log is
durable.
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
]

Row: TypeAlias = Mapping[str, object]
"""Column names to Python values; `pipeline.encoding.normalize` says which values suit which column."""


@dataclass(frozen=True, slots=True)
class Insert:
    """A whole new row; one that shares a unique key with it is replaced."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    """The row as it is now. `old_key` is required when key columns changed; omitted columns keep their value."""

    table: str
    row: Row
    old_key: Row | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """The row of this key is gone; columns beyond the key are ignored."""

    table: str
    key: Row


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of these tables are gone."""

    tables: Sequence[str]


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new, empty table with its key and indexes."""

    table: Table


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table is gone, with its rows and indexes."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameTable:
    """A table has a new name, or moved to another schema; its indexes keep their names."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column; existing rows get its default or null, anything else takes updates in the same transaction."""

    table: str
    column: Column


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column is gone; indexes that use it must be dropped before."""

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
    """An index is gone: its name, or `schema.name`."""

    name: str


SchemaChange: TypeAlias = (
    CreateTable | DropTable | RenameTable | AddColumn | DropColumn | AlterColumn | CreateIndex | DropIndex
)
Change: TypeAlias = Insert | Update | Delete | Truncate | SchemaChange


@dataclass(frozen=True, slots=True)
class Transaction:
    """An atomic group of changes, in order.

    `position` is unique to this transaction: `changes(position)` continues right after it. Positions that are plain
    integers must increase. `changes` may be a generator, read once and never held whole, so a transaction can be larger
    than memory. `commit_time_ms` (epoch) feeds the lag metrics. `watermark` is for stores whose positions are ordered
    versions themselves: a LexiVersion whose major number is above all earlier ones. `explain` is asked when a change is
    refused, the one that `changes` gave last: it makes a better error of it, one that tells where in the store that
    change stands.
    """

    position: Position
    changes: Iterable[Change]
    commit_time_ms: float | None = None
    watermark: str | None = None
    explain: Callable[[InvalidChange], ChangesourceError] | None = None


@runtime_checkable
class Partition(Protocol):
    """A share of one table's rows in a snapshot; picklable, and readable more than once with the same result."""

    @property
    def table(self) -> str:
        """The table's full name."""

    def rows(self) -> Iterable[Row]:
        """The rows, in any order."""


@runtime_checkable
class JsonPartition(Partition, Protocol):
    """A partition that can write its rows as JSON itself, where that is much faster than giving them as values.

    It vouches that every object has all columns of the table in declared order, each as `pipeline.encoding.normalize`
    would have it; nothing is checked again. `rows` must give the same rows.
    """

    def json_rows(self, checked: Callable[[Row], bytes]) -> Iterable[Sequence[bytes]]:
        """JSON objects, some at a time; `checked` makes one of a row that the partition cannot vouch for."""


@runtime_checkable
class ExplainingPartition(Partition, Protocol):
    """A partition that can tell where in the store a row stands that was refused, as `Transaction.explain` does."""

    def explain(self, error: InvalidChange, is_refused: Callable[[Row], bool]) -> ChangesourceError:
        """A better error for one of its rows; `is_refused` tells which that is. The rows may be read again for it."""


@dataclass(frozen=True, slots=True)
class RowsPartition:
    """A partition whose rows are at hand, for small data."""

    table: str
    row_list: Sequence[Row]

    def rows(self) -> Iterable[Row]:
        """The rows as given."""
        return self.row_list


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent state: every partition shows the store exactly at `position`.

    `tables` overrides `Adapter.tables()` where the schema must be read with the data. `close` is called when all rows
    were read or reading failed. `watermark` belongs to stores that also give `Transaction.watermark`.

    `can_resume` is for a snapshot that outlives the process that took it: asked later, in another process, it tells
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
    """A store, as the pipeline sees it. Optional extras are described by `Acknowledging` and `Closing`.

    An attribute `poll_interval` (seconds, default 0.05) sets how soon `changes` is called again after it returned
    without anything new; after something new it is called at once.
    """

    def tables(self) -> Sequence[Table]:
        """The tables to sync, as they are now."""

    def snapshot(self) -> Snapshot:
        """One consistent state and the position at which the transactions after it begin."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        """Whole transactions after `after`, in commit order. May block for more, or return when there is none now."""


@runtime_checkable
class Acknowledging(Protocol):
    """An adapter whose store may forget what the log holds."""

    def acknowledge(self, position: Position) -> None:
        """Everything up to `position` is durable in the log. Called from another thread than `changes` runs in."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was found about a store; `fix` is empty exactly when it is ok."""

    name: str
    ok: bool
    message: str
    fix: str = ""


@runtime_checkable
class Examining(Protocol):
    """An adapter that can say what its store lacks, for `changesource doctor`. Changes nothing in the store."""

    def examine(self) -> Iterable[Check]:
        """All findings, good ones too."""


@runtime_checkable
class Publishing(Protocol):
    """An adapter that follows named publications of its store; a consumer that asks for others is refused."""

    @property
    def publications(self) -> frozenset[str]:
        """The names a consumer may ask for, all together."""


@runtime_checkable
class UsingSpark(Protocol):
    """An adapter whose `changes` runs Spark jobs: it is followed in Spark's driver, not in a task or another process.

    `SparkSession.builder.getOrCreate()` is the pipeline's session there.
    """

    @property
    def uses_spark(self) -> bool:
        """Whether it does, with the settings it has."""


@runtime_checkable
class Closing(Protocol):
    """An adapter that holds connections."""

    def close(self) -> None:
        """Let go of everything and make a blocked `changes` return. Called from any thread, maybe twice."""
