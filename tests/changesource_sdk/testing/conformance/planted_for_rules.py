"""For each rule of the suite an adapter that breaks it and, as far as rules can be told apart, no other.

`planted_adapters` has bugs that authors really make, most of which break several rules. These are narrower: each shows
what its rule sees that the others do not. `test_every_rule` lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar
from uuid import uuid4

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    Column,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    Position,
    RenameTable,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.contract import SCHEMA_CHANGES
from changesource_sdk.errors import position_lost
from tests.changesource_sdk.testing.conformance.planted_adapters import EachChange, LivePartition, with_values
from tests.changesource_sdk.testing.conformance.workshop import ITEM, RightAdapter


class EachTransaction(RightAdapter):
    """A base for bugs in whole transactions. `calls` counts the calls of `changes` of this adapter."""

    calls = 0

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        """The transaction that is yielded instead of the one with this number in the call."""
        return transaction

    def changes(self, after: Position) -> Iterator[Transaction]:
        self.calls += 1
        for index, transaction in enumerate(super().changes(after)):
            yield self.altered(index, transaction)

    def behind(self, after: Position) -> int:
        """How many transactions the store has after a position."""
        return self.store.last - int(str(after))


class BlocksWithoutClose(RightAdapter):
    """Waits for more, and nothing but a commit ends that."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            after = transaction.position
            yield transaction
        with self.store.changed:
            self.store.changed.wait_for(lambda: self.store.last > int(str(after)))


OLD_CLIENTS = Table(
    "clients",
    [Column("clientGroupID", str), Column("clientID", str), Column("lastMutationID", int)],
    ("clientGroupID", "clientID"),
    "zero_0",
)


class SyncsOldClients(RightAdapter):
    """Syncs the table in which Zero counts mutations, in the shape of an earlier version: without the user's id."""

    def tables(self) -> Sequence[Table]:
        return [*super().tables(), OLD_CLIENTS]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a table, which begin after the last one of the page before."""

    snapshot: str
    table: str
    content: tuple[Row, ...]
    number: int

    ends: ClassVar[set[tuple[str, int]]] = set()  # the pages whose last row is known

    def rows(self) -> Iterable[Row]:
        if self.number and (self.snapshot, self.number - 1) not in self.ends:
            return []
        self.ends.add((self.snapshot, self.number))
        return self.content


class ReadsPageAfterPage(RightAdapter):
    """A partition needs to know where the one before it ended."""

    def snapshot(self) -> Snapshot:
        taken = super().snapshot()
        cursor = uuid4().hex
        pages: list[Page] = []
        for partition in taken.partitions:
            rows = tuple(partition.rows())
            half = (len(rows) + 1) // 2
            pages += [
                Page(cursor, partition.table, part, len(pages) + n) for n, part in enumerate((rows[:half], rows[half:]))
            ]
        return replace(taken, partitions=pages)


def cut(row: Row) -> dict[str, object]:
    """The row with long texts cut off."""
    return {name: value[:1000] if isinstance(value, str) else value for name, value in row.items()}


class CutsLongTextsInSnapshots(RightAdapter):
    """A buffer that is too short, in snapshots."""

    def snapshot(self) -> Snapshot:
        parts = [RowsPartition(name, [cut(row) for row in rows.values()]) for name, rows in self.store.rows.items()]
        return replace(super().snapshot(), partitions=parts)


class CutsLongTexts(EachChange):
    """A buffer that is too short, in changes."""

    def altered(self, change: Change) -> Change:
        return with_values(change, cut)


class SkipsBadTexts(EachChange):
    """Leaves out, without a word, the texts that it cannot convert."""

    def altered(self, change: Change) -> Change | None:
        title = change.row.get("title") if isinstance(change, Insert) else ""
        return None if isinstance(title, str) and "\ud800" in title else change


class SkipsBadNumbers(EachChange):
    """Leaves out, without a word, the numbers that it cannot convert."""

    def altered(self, change: Change) -> Change | None:
        rate = change.row.get("rate") if isinstance(change, Insert) else 0
        return None if rate != rate else change


class ReadsSmallTablesLate(RightAdapter):
    """Tables of a few rows are read when it is their turn, not when the snapshot is taken."""

    def snapshot(self) -> Snapshot:
        live = [
            LivePartition(self._name, table) if len(rows) < 50 else RowsPartition(table, list(rows.values()))
            for table, rows in self.store.rows.items()
        ]
        return replace(super().snapshot(), partitions=live)


class TiresAfterForty(EachTransaction):
    """Loses the last change of every transaction after the fortieth of one adapter, in a small table."""

    given = 0

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        self.given += 1
        is_tired = self.given > 40 and len(self.store.rows["item"]) < 100
        return replace(transaction, changes=list(transaction.changes)[:-1]) if is_tired else transaction


class JoinsInserts(RightAdapter):
    """Waits with a third insert of consecutive keys: a fourth might follow."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # The keys of the last two transactions, None for those that are no single insert of a plain row.
        self._keys: list[int | None] = [None, None]

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            changes, key = list(transaction.changes), None
            match changes:
                case [Insert("item", {"id": int(number), "title": str(title)} as row)]:
                    key = number if title.startswith("row ") and len(row) == len(ITEM.columns) else None
            if key is not None and self._keys == [key - 2, key - 1] and transaction.position == self.store.last:
                return
            self._keys = [self._keys[1], key]
            yield transaction


class TuplesAfterTheSnapshot(RightAdapter):
    """Positions of transactions are tuples, which come back as lists."""

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), position=[self.store.last])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, list | tuple)
        for transaction in super().changes(after[0]):
            yield replace(transaction, position=(transaction.position,))  # type: ignore[arg-type]

    def acknowledge(self, position: Position) -> None:
        assert isinstance(position, list | tuple)
        super().acknowledge(position[0])


class SkipsWhenSevenBehind(EachTransaction):
    """A new adapter that is far behind starts one transaction too late."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        skips = self.calls == 0 and self.behind(after) == 7 and self.store.last == 9
        return super().changes(int(str(after)) + 1 if skips else after)


class ThirdReadLacksARow(EachTransaction):
    """What was read twice from a position is taken for known."""

    starts: ClassVar[dict[str, list[Position]]] = {}

    def changes(self, after: Position) -> Iterator[Transaction]:
        starts = self.starts.setdefault(self._name, [])
        if self.calls == 0:
            starts.append(after)
        known = starts.count(after) > 2 and self.behind(after) == 8
        return super().changes(int(str(after)) + 4 if known else after)


class ResyncsNeedlessly(EachTransaction):
    """A new adapter that is behind asks for a new snapshot."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        acknowledged = min(self.store.kept, default=0) == int(str(after)) + 1 > 2
        if self.calls == 0 and acknowledged and self.behind(after) in (1, 3):
            raise position_lost("it is not the newest")
        return super().changes(after)


class SavesWhileItYields(RightAdapter):
    """Saves its place when it yields, and corrects that when the next one is requested."""

    saved: ClassVar[dict[str, int]] = {}
    cursor = 0

    def changes(self, after: Position) -> Iterator[Transaction]:
        saved = self.saved.pop(self._name, 0)
        self.cursor = saved if saved == int(str(after)) + 1 else self.cursor
        for transaction in super().changes(max(self.cursor, int(str(after)))):
            self.saved[self._name] = int(str(transaction.position))
            yield transaction
            self.saved.pop(self._name, None)


class ExportsOnce(RightAdapter):
    """A snapshot is an export that the store keeps until the first acknowledgement, if it is a young store."""

    used: ClassVar[set[str]] = set()

    def snapshot(self) -> Snapshot:
        if self._name in self.used and self.store.last <= 4:
            raise FileNotFoundError("the export is gone")
        return super().snapshot()

    def acknowledge(self, position: Position) -> None:
        self.used.add(self._name)
        super().acknowledge(position)


class InsertsParts(EachChange):
    """An update of a single column becomes an insert."""

    def altered(self, change: Change) -> Change:
        if isinstance(change, Update) and len(change.row) == 2 and change.old_key is None:
            return Insert(change.table, change.row)
        return change


class TiresOfARow(EachTransaction):
    """Loses the updates of a row after the ninth, in a table of a few rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # How often each key was updated.
        self._updates: Counter[object] = Counter()

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        return replace(transaction, changes=[change for change in transaction.changes if not self._is_lost(change)])

    def _is_lost(self, change: Change) -> bool:
        if not isinstance(change, Update):
            return False
        self._updates[change.row["id"]] += 1
        return self._updates[change.row["id"]] > 9 and len(self.store.rows["item"]) < 4


class KeepsTheLastRow(EachTransaction):
    """A table that becomes empty by a delete keeps its last row."""

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        changes = list(transaction.changes)
        is_last = len(changes) == 1 and isinstance(changes[0], Delete) and not self.store.rows["item"]
        return replace(transaction, changes=[]) if is_last and transaction.position == self.store.last else transaction


class TearsMixedTransactions(RightAdapter):
    """A delete after an insert goes with the next transaction."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        late: list[Change] = []
        for transaction in super().changes(after):
            changes = [*late, *transaction.changes]
            late = []
            match changes:
                case [Delete(), Insert(), Delete() as last]:
                    changes, late = changes[:2], [last]
            yield replace(transaction, changes=changes)


class ForgetsMoreWhenBehind(RightAdapter):
    """Forgets the transaction after the one that was acknowledged too, if there are several."""

    def acknowledge(self, position: Position) -> None:
        number = int(str(position))
        self.store.forget(number + 1 if self.store.last - number >= 4 else number)


class IgnoresAGap(RightAdapter):
    """Continues with what there is, if what follows a position is gone, once the store is older."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        oldest = min(self.store.kept, default=0)
        return super().changes(oldest - 1 if int(str(after)) + 1 < oldest >= 10 else after)


class FailsWithoutHistory(RightAdapter):
    """An error that is tried again, where the position is lost, in a young store."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        if int(str(after)) + 1 < min(self.store.kept, default=0) <= 6:
            raise OSError("the file is gone")
        return super().changes(after)


class LosesNewest(EachTransaction):
    """A base for bugs in a schema change that is read as soon as it is made."""

    lost: ClassVar[type[Change]] = AddColumn
    newer: ClassVar[int] = 0  # how many transactions may follow it when it is read

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        changes = list(transaction.changes)
        is_newest = self.behind(transaction.position) <= self.newer and len(changes) == 1
        if is_newest and isinstance(changes[0], self.lost):
            return replace(transaction, changes=self.instead(changes[0]))
        return transaction

    def instead(self, change: Change) -> list[Change]:
        """What is yielded for it."""
        return []


class TakesNotesForComments(EachChange):
    """Does not announce a column whose name says that it is a note."""

    def altered(self, change: Change) -> Change | None:
        return None if isinstance(change, AddColumn) and change.column.name.endswith("note") else change


class KeepsNotes(EachChange):
    """Does not announce that such a column is gone."""

    def altered(self, change: Change) -> Change | None:
        return None if isinstance(change, DropColumn) and change.name.endswith("note") else change


class LosesRenamedColumn(LosesNewest):
    """A column with another name is a new column."""

    lost = AlterColumn

    def instead(self, change: Change) -> list[Change]:
        assert isinstance(change, AlterColumn)
        renamed = change.old_name != change.column.name
        return [AddColumn(change.table, change.column)] if renamed else [change]


class LosesChangedType(LosesNewest):
    """Does not announce that a column has another type."""

    lost = AlterColumn
    newer = 1  # rows look the same without it, so the suite does not wait for it

    def instead(self, change: Change) -> list[Change]:
        assert isinstance(change, AlterColumn)
        return [change] if change.old_name != change.column.name else []


class LosesDefault(LosesNewest):
    """A new column without its default."""

    def instead(self, change: Change) -> list[Change]:
        assert isinstance(change, AddColumn)
        return [AddColumn(change.table, replace(change.column, default=None, optional=True))]


class LosesRenamedTable(LosesNewest):
    """A table with another name is not followed."""

    lost = RenameTable


class LosesDropTable(LosesNewest):
    """Does not announce that a table is gone."""

    lost = DropTable


class LosesTruncate(LosesNewest):
    """A table that is emptied at once keeps its rows."""

    lost = Truncate


class IgnoresUnknownTables(EachChange):
    """Follows the tables that it has seen when it started, and no other."""

    def altered(self, change: Change) -> Change | None:
        unknown = "conformance_created"
        name = change.table.full_name if isinstance(change, CreateTable) else getattr(change, "table", "")
        return None if name == unknown else change


def named_by_today(adapter: RightAdapter, transaction: Transaction) -> Transaction:
    """The transaction with its values under the names of today's columns, in their order."""
    names = adapter.store.schema.tables["item"].column_names

    def renamed(change: Change) -> Change:
        if isinstance(change, Insert) and change.table == "item":
            return replace(change, row=dict(zip(names, change.row.values(), strict=False)))
        return change

    return replace(transaction, changes=[renamed(change) for change in transaction.changes])


class TodaysColumnsAfterAStop(EachTransaction):
    """What a new adapter reads in one go is named by the columns there are then."""

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        is_late = self.calls == 1 and index >= 10
        return named_by_today(self, transaction) if is_late else transaction


class TodaysColumnsWhenBehind(EachTransaction):
    """The same in an adapter that has been reading for a while."""

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        is_late = self.calls > 1 and index >= 10
        return named_by_today(self, transaction) if is_late else transaction


class TodaysColumnsInBetween(EachTransaction):
    """A new adapter takes the columns of today, if there was a schema change before its position."""

    known: Sequence[Table] = ()

    def use_tables(self, tables: Sequence[Table]) -> None:
        self.known = tables

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        (item,) = [table for table in self.known if table.full_name == "item"]
        is_between = self.calls == 1 and item.column_names != ITEM.column_names
        return named_by_today(self, transaction) if is_between else transaction


class SchemaFirst(EachTransaction):
    """The schema changes of a transaction come before its rows."""

    def altered(self, index: int, transaction: Transaction) -> Transaction:
        changes = list(transaction.changes)
        schema = [change for change in changes if isinstance(change, SCHEMA_CHANGES)]
        return replace(transaction, changes=[*schema, *(change for change in changes if change not in schema)])
