"""Wrong adapters: each has one bug that authors really make. `test_planted_bugs` shows that each is caught, and how."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import ClassVar

from changesource_sdk.adapter import (
    AddColumn,
    Change,
    CreateTable,
    Delete,
    DropColumn,
    Insert,
    Position,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    Update,
)
from protocol.watermark import from_int
from tests.changesource_sdk.testing.conformance.workshop import STORES, RightAdapter


def with_values(change: Change, changed: Callable[[dict[str, object]], dict[str, object]]) -> Change:
    """The change with other values in its row."""
    return replace(change, row=changed(dict(change.row))) if isinstance(change, Insert | Update) else change


class EachChange(RightAdapter):
    """A base for bugs in single changes: what `altered` gives is yielded instead."""

    def altered(self, change: Change) -> Change | None:
        return change

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            altered = map(self.altered, transaction.changes)
            yield replace(transaction, changes=[change for change in altered if change is not None])


class LosesAtTheSeam(RightAdapter):
    """Begins with what is new when it is first asked, not after the snapshot's position."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._cursor: int | None = None

    def changes(self, after: Position) -> Iterator[Transaction]:
        if self._cursor is None:
            self._cursor = self.store.last
        for transaction in super().changes(self._cursor):
            self._cursor = int(str(transaction.position))
            yield transaction


class Doubles(RightAdapter):
    """Gives every transaction twice, the second time under another position."""

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), position=[self.store.last, 0])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, list)
        for transaction in super().changes(after[0]):
            yield replace(transaction, position=[transaction.position, 0])
            yield replace(transaction, position=[transaction.position, 1])

    def acknowledge(self, position: Position) -> None:
        assert isinstance(position, list)
        super().acknowledge(position[0])


class Tears(RightAdapter):
    """Makes a transaction of every change."""

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), position=[self.store.last, 0])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, list)
        for transaction in super().changes(after[0]):
            for number, change in enumerate(transaction.changes):
                yield Transaction([transaction.position, number], [change])

    def acknowledge(self, position: Position) -> None:
        pass


class ReusesPositions(RightAdapter):
    """Two transactions share a position."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(int(str(after)) - 1):
            yield replace(transaction, position=int(str(transaction.position)) // 2 * 2)

    def acknowledge(self, position: Position) -> None:
        pass


class CountsDown(RightAdapter):
    """Positions fall."""

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), position=10_000 - self.store.last)

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(10_000 - int(str(after))):
            yield replace(transaction, position=10_000 - int(str(transaction.position)))

    def acknowledge(self, position: Position) -> None:
        pass


class TuplePositions(RightAdapter):
    """A tuple is a list when it comes back."""

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), position=(self.store.last,))  # type: ignore[arg-type]

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, list | tuple)
        for transaction in super().changes(after[0]):
            yield replace(transaction, position=(transaction.position,))  # type: ignore[arg-type]


class ClockPositions(RightAdapter):
    """A position that is no JSON value."""

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), position={"at": datetime(2026, 1, 1)})  # type: ignore[dict-item]


class NumberInText(EachChange):
    """A number in a text column."""

    def altered(self, change: Change) -> Change:
        return with_values(change, lambda row: {**row, "title": 5} if "title" in row else row)


class TextForTime(EachChange):
    """A time as text."""

    def altered(self, change: Change) -> Change:
        return with_values(change, lambda row: {**row, "made": str(row.get("made"))} if row.get("made") else row)


class TextForJson(EachChange):
    """JSON text where the document belongs."""

    def altered(self, change: Change) -> Change:
        return with_values(change, lambda row: {**row, "extra": json.dumps(row["extra"])} if row.get("extra") else row)


class InsertForUpdate(EachChange):
    """An insert of the changed columns only."""

    def altered(self, change: Change) -> Change:
        return Insert(change.table, change.row) if isinstance(change, Update) and not change.old_key else change


class LeavesOutNulls(EachChange):
    """An update that leaves out the columns that became null."""

    def altered(self, change: Change) -> Change:
        return with_values(change, lambda row: {name: value for name, value in row.items() if value is not None})


class LosesKeyChange(EachChange):
    """An update of the key without the old key."""

    def altered(self, change: Change) -> Change:
        return replace(change, old_key=None) if isinstance(change, Update) else change


class LosesDeletes(EachChange):
    """Deletes are not seen."""

    def altered(self, change: Change) -> Change | None:
        return None if isinstance(change, Delete) else change


class LosesUpdates(EachChange):
    """Updates are not seen."""

    def altered(self, change: Change) -> Change | None:
        return None if isinstance(change, Update) else change


class MisspellsColumn(EachChange):
    """A column that was never declared."""

    def altered(self, change: Change) -> Change:
        return with_values(change, lambda row: {"titel" if name == "title" else name: v for name, v in row.items()})


class ForgetsCreateTable(EachChange):
    """Rows of a table nobody was told of."""

    def altered(self, change: Change) -> Change | None:
        return None if isinstance(change, CreateTable) else change


class IgnoresNewTables(EachChange):
    """Follows the tables that were there when it started, and no other."""

    def altered(self, change: Change) -> Change | None:
        known = change.table.full_name if isinstance(change, CreateTable) else getattr(change, "table", "item")
        return change if known == "item" else None


class SchemaAfterRows(RightAdapter):
    """The new column is told after the rows that have it."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        held: list[Change] = []
        for transaction in super().changes(after):
            batch = list(transaction.changes)
            held += [change for change in batch if isinstance(change, AddColumn)]
            rows = [change for change in batch if not isinstance(change, AddColumn)]
            yield replace(transaction, changes=[*rows, *held] if rows else [])
            held = [] if rows else held


class IgnoresAcks(RightAdapter):
    """The store keeps everything for ever."""

    def acknowledge(self, position: Position) -> None:
        pass


class ForgetsTooMuch(RightAdapter):
    """Forgets all there is when anything is acknowledged."""

    def acknowledge(self, position: Position) -> None:
        self.store.forget(self.store.last)

    def changes(self, after: Position) -> Iterator[Transaction]:
        oldest = min(self.store.kept, default=0)
        return super().changes(max(int(str(after)), oldest - 1))


class ForgetsWhenRead(RightAdapter):
    """Takes what was read for safe, as a queue does that acknowledges on delivery."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        batch = [(number, changes) for number, changes in self.store.kept.items() if number > int(str(after))]
        self.store.forget(self.store.last)
        for number, changes in batch:
            yield Transaction(number, changes)


@dataclass(frozen=True, slots=True)
class LivePartition:
    """Rows as they are when they are read."""

    store: str
    table: str

    def rows(self) -> Iterable[Row]:
        seen = 0
        while seen < len(STORES[self.store].rows[self.table]):
            yield list(STORES[self.store].rows[self.table].values())[seen]
            seen += 1


class InconsistentSnapshot(RightAdapter):
    """Partitions show the store as it is when they are read."""

    def snapshot(self) -> Snapshot:
        live = [LivePartition(self._name, table) for table in self.store.rows]
        return replace(super().snapshot(), partitions=live)


class StaleRows(RightAdapter):
    """Reads the position first and the rows later, with nothing to hold them together."""

    def snapshot(self) -> Snapshot:
        position = self.store.last
        # Until a writer, if there is one, has had its turn: on a busy machine that may take a while.
        deadline = time.monotonic() + 0.1
        while self.store.last == position and time.monotonic() < deadline:
            time.sleep(0.001)
        return replace(super().snapshot(), position=position)


@dataclass(slots=True)
class OncePartition:
    """Rows that are used up by reading."""

    table: str
    left: list[Row]

    def rows(self) -> Iterable[Row]:
        while self.left:
            yield self.left.pop()


class ReadsOnce(RightAdapter):
    """A partition that can be read only once."""

    def snapshot(self) -> Snapshot:
        once = [OncePartition(table, list(rows.values())) for table, rows in self.store.rows.items()]
        return replace(super().snapshot(), partitions=once)


class OwnCursor(RightAdapter):
    """Keeps its place in itself and ignores the position it is given: a new one starts with what is new."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._cursor = self.store.last

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(max(self._cursor, int(str(after)))):
            self._cursor = int(str(transaction.position))
            yield transaction


class SavesTooEarly(RightAdapter):
    """Saves its place when it yields, not when it is told that the log is durable."""

    saved: ClassVar[dict[str, int]] = {}

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(max(self.saved.get(self._name, 0), int(str(after)))):
            self.saved[self._name] = int(str(transaction.position))
            yield transaction


class Reorders(RightAdapter):
    """Transactions come in another order than they were committed."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        found = list(super().changes(after))
        for first, second in zip(found[::2], found[1::2], strict=False):
            yield replace(first, changes=second.changes)
            yield replace(second, changes=first.changes)
        if len(found) % 2:
            yield found[-1]


class NeedsARow(RightAdapter):
    """Takes the position from the newest row, and there may be none."""

    def snapshot(self) -> Snapshot:
        max(self.store.rows["item"], key=str)
        return super().snapshot()


class ExpectsAChange(RightAdapter):
    """Looks at the first change of a transaction, and there may be none."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            next(iter(transaction.changes)).__class__  # noqa: B018
            yield transaction


class ReadsAThousand(RightAdapter):
    """Reads a transaction up to a limit that nobody reaches in tests."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            yield replace(transaction, changes=list(transaction.changes)[:1000])


class SnapshotsOnce(RightAdapter):
    """Makes something for its snapshot that is there already the second time."""

    made: ClassVar[set[str]] = set()

    def snapshot(self) -> Snapshot:
        if self._name in self.made:
            raise FileExistsError("the export exists")
        self.made.add(self._name)
        return super().snapshot()


class LosesDroppedColumns(EachChange):
    """Says nothing of columns that are gone."""

    def altered(self, change: Change) -> Change | None:
        return None if isinstance(change, DropColumn) else change


class TextForJsonInSnapshots(RightAdapter):
    """JSON text where the document belongs, in snapshots only."""

    def snapshot(self) -> Snapshot:
        rows = [{**row, "extra": json.dumps(row["extra"])} for row in self.store.rows["item"].values()]
        return replace(super().snapshot(), partitions=[RowsPartition("item", rows)])


class Deaf(RightAdapter):
    """Nothing after the snapshot."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        yield from ()


class HoldsBack(RightAdapter):
    """A transaction is known to be whole only when the next begins."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        found = list(super().changes(after))
        yield from found[:-1]


class BlocksForEver(RightAdapter):
    """Waits for more, and nothing can make it stop."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        yield from super().changes(after)
        with self.store.changed:
            seen = self.store.last
            self.store.changed.wait_for(lambda: self.store.last > seen)


class SlowSnapshot(RightAdapter):
    """A snapshot that never ends."""

    def snapshot(self) -> Snapshot:
        threading.Event().wait(30)
        return super().snapshot()


class HoldsALock(RightAdapter):
    """Cannot travel."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._lock = threading.Lock()


class NoKey(RightAdapter):
    """A table without a key."""

    def tables(self) -> Sequence[Table]:
        return [replace(table, key=()) for table in super().tables()]


class OddWatermark(RightAdapter):
    """Watermarks of its own that are none."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            yield replace(transaction, watermark=f"v{transaction.position}")


class FallingWatermarks(RightAdapter):
    """Watermarks of its own that start over."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            yield replace(transaction, watermark=from_int(1 + int(str(transaction.position)) % 3))


class SecondsForMilliseconds(RightAdapter):
    """Commit times in seconds."""

    def changes(self, after: Position) -> Iterator[Transaction]:
        for transaction in super().changes(after):
            yield replace(transaction, commit_time_ms=time.time())


class ChokesOnBadValues(EachChange):
    """Converts values itself, and fails where one cannot be."""

    def altered(self, change: Change) -> Change:
        def checked(row: dict[str, object]) -> dict[str, object]:
            (int(str(row.get("amount") or 0))).to_bytes(8, "big", signed=True)
            str(row.get("title")).encode()
            Decimal(str(row.get("rate") or 0)).quantize(Decimal("0.000001")).to_integral_exact().__int__()
            return row

        return with_values(change, checked)


class SkipsBadValues(EachChange):
    """Leaves out, without a word, the rows that it cannot convert."""

    def altered(self, change: Change) -> Change | None:
        amount = change.row.get("amount") if isinstance(change, Insert) else 0
        return None if isinstance(amount, int) and amount > 2**62 else change
