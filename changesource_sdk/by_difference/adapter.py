"""The base class of adapters that list rows instead of reading a log.

`snapshot` lists every table once, into copies that partitions read and into a new digest file. Each call of `changes`
is one poll: it brings the digest file to the version that the position names, lists again, commits the difference as
the next version of the file, and yields it as one transaction. `acknowledge` deletes what no later position needs.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from changesource_sdk.adapter import Snapshot, Table, Transaction
from changesource_sdk.by_difference import row_copies
from changesource_sdk.by_difference.comparison import Comparison, PollPlan, TablePlan, first_tables, plan_poll
from changesource_sdk.by_difference.digest_file import DigestFile
from changesource_sdk.by_difference.folders import DIGESTS, StateFolders
from changesource_sdk.by_difference.listing import Item, Listing, ListingEnded
from changesource_sdk.by_difference.row_copies import RowCopies
from changesource_sdk.by_difference.row_digests import RowDigester
from changesource_sdk.by_difference.scratch import Scratch
from changesource_sdk.by_difference.versions import RememberedTable, Version
from changesource_sdk.contract import checked_tables
from changesource_sdk.errors import AdapterError, ConfigurationError, position_lost
from changesource_sdk.positions import Position

LONGEST_WAIT_S = 3600.0
"""The longest pause of `wait`: an upstream must not be able to stop the stream for days."""


class ByDifference(ABC):
    """An adapter whose author lists rows. Subclasses define `tables` and `rows`, and may define `changed_since`.

    Settings of a subclass are the parameters of its `__init__`, as for every adapter. One is `state`, the folder
    for the digests, with a default: `serve` passes a folder in its state directory. `super().__init__(state)` takes it.

    What a consumer sees after each transaction is one listing. It is a state that the upstream was in only if `rows`
    reads one, for example in one query or with pages of one version.
    """

    poll_interval: float = 5.0
    """Seconds between the end of a poll and the next one."""

    list_interval: float = 3600.0
    """With `changed_since`: seconds after which a table is listed whole again, which finds rows that were deleted.

    `math.inf` if `changed_since` reports every delete.
    """

    most_deletes: float = 1.0
    """The share of a table's rows, 0 to 1, that a listing may lack. Beyond it the poll fails with `too-many-deletes`:
    protection from an upstream that suddenly shows nothing.
    """

    def __init__(self, state: str = "changesource-state/by-difference") -> None:
        self._state = Path(state)
        self._initialise()

    def _initialise(self) -> None:
        # Set by `close`, from any thread; ends `wait` and listings.
        self._closed = threading.Event()
        # Whether the next `changes` returns at once, so that the pipeline pauses; set after a listing with a result,
        # by the thread of `changes`, which is called again immediately after a transaction.
        self._is_resting = False
        # The folder whose digest file this process has checked; written by the thread of `changes`.
        self._checked_folder: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        own = ("_closed", "_is_resting", "_checked_folder")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._initialise()

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """The tables, in their current form, each with a key. Called at every poll."""

    @abstractmethod
    def rows(self, table: str) -> Iterable[Item]:
        """All rows of a table, by its full name, in any order; a generator, so that they are not all in memory.

        Raise if the listing cannot be completed: rows that do not come were deleted. `yield Cursor(value)` leaves a
        cursor for `changed_since`.
        """

    def changed_since(self, table: str, cursor: Position) -> Iterable[Item] | None:
        """Optional: the rows of a table that were written since `cursor` was left, a `Delete` for each one that is
        known to be deleted, and the next `Cursor`. Nothing if nothing has changed.

        Rows that have not changed may come, too: they are compared like all others. If the answer is a complete
        listing, yield `COMPLETE` first. Return None to have the table listed by `rows`.
        """
        return None

    def wait(self, seconds: float) -> None:
        """Pause inside `rows` or `changed_since`, for example as long as `Retry-After` says; at most an hour.

        Raises `ListingEnded`, which must not be caught, when the adapter is closed meanwhile.
        """
        if self._closed.wait(min(max(seconds, 0.0), LONGEST_WAIT_S)):
            raise ListingEnded

    def snapshot(self) -> Snapshot:
        """One listing of every table, from copies that exist until the snapshot is closed."""
        tables = self._declared()
        remembered = first_tables(tables)
        with self._folders().fill() as (number, folder), Scratch(folder) as scratch:
            copies, listed = RowCopies(folder), list[RememberedTable]()
            with DigestFile.create(folder / DIGESTS, remembered) as file:
                file.fill(self._first_rows(remembered, scratch, copies, listed))
                file.update_head(file.head(), listed)
                position: Position = [number, file.head().token]
            parts = copies.parts()
        self._is_resting = True
        return Snapshot(
            position,
            parts,
            tables,
            close=partial(row_copies.remove, parts),
            can_resume=partial(row_copies.are_whole, parts),
        )

    def _first_rows(
        self,
        tables: Sequence[RememberedTable],
        scratch: Scratch,
        copies: RowCopies,
        listed: list[RememberedTable],
    ) -> Iterator[list[tuple[int, str, bytes]]]:
        """List every table into `copies`; yields digests. Appends to `listed` what is to be remembered."""
        for each in tables:
            began, digester = time.time(), RowDigester(each.table)
            scratch.forget_seen()
            listing = self._complete_listing(each.table, digester)
            for batch in listing.batches():
                rows = scratch.see(each.table.full_name, batch)
                try:
                    copies.add(each.table.full_name, [row.row for row in rows if row.row is not None])
                except OSError as error:
                    fix = "make room in the state folder; the upstream is listed again"
                    raise AdapterError("state-unusable", f"rows cannot be copied: {error}", fix=fix) from error
                yield [(each.id, row.key, row.digest) for row in rows if row.digest is not None]
            listed.append(RememberedTable(each.id, each.table, listing.cursor, began))

    def changes(self, after: Position) -> Iterator[Transaction]:
        """One poll: at most one transaction. Raises `ResyncRequired` if the digests do not fit the position."""
        if self._is_resting:
            self._is_resting = False
            return
        number, token = _parsed(after)
        path = self._folders().digests(number)
        with DigestFile(path) as file, Scratch(path.parent) as scratch:
            base = self._version(file, number, token)
            try:
                comparison = self._compare(file, scratch, base)
            except ListingEnded:
                return
            if not comparison.has_changes():
                self._remember_cursors(file, base, comparison)
                return
            version = file.commit(base, comparison.tables, scratch.deltas(), comparison.plan.dropped)
            self._is_resting = True
            yield Transaction([number, version.token], comparison.changes(), time.time() * 1000)

    def _version(self, file: DigestFile, number: int, token: str) -> Version:
        """The file at the version that a position names."""
        if self._checked_folder != number:
            file.check()
            self._checked_folder = number
        version = file.move_to(token)
        if version is None:
            raise position_lost("the digests are of another time than the position: one of them was restored")
        return version

    def _compare(self, file: DigestFile, scratch: Scratch, base: Version) -> Comparison:
        plan: PollPlan = plan_poll(base, self._declared())
        comparison = Comparison(file, scratch, plan, self.most_deletes)
        for table in plan.tables:
            comparison.compare(table, self._listing(table))
        return comparison

    def _listing(self, plan: TablePlan) -> Listing:
        """What changed since the table's cursor, if there is one and no complete listing is due; else all rows."""
        remembered = plan.remembered
        is_due = time.time() - remembered.listed_at >= self.list_interval
        if remembered.cursor is not None and not is_due:
            items = self.changed_since(remembered.table.full_name, remembered.cursor)
            if items is not None:
                name = remembered.table.full_name
                return Listing(name, items, plan.digester, is_complete=False, is_ended=self._closed.is_set)
        return self._complete_listing(remembered.table, plan.digester)

    def _complete_listing(self, table: Table, digester: RowDigester) -> Listing:
        name = table.full_name
        return Listing(name, self.rows(name), digester, is_complete=True, is_ended=self._closed.is_set)

    def _remember_cursors(self, file: DigestFile, base: Version, comparison: Comparison) -> None:
        """No row has changed: the version stays, with the new cursors. Without cursors there is nothing to write."""
        if any(each.cursor is not None for each in comparison.tables) and tuple(comparison.tables) != base.tables:
            file.update_head(base, comparison.tables)

    def acknowledge(self, position: Position) -> None:
        """Delete the folders and versions that only earlier positions need."""
        number, token = _parsed(position)
        self._folders().forget_before(number)
        path = self._folders().digests(number)
        if path.is_file():
            with DigestFile(path) as file:
                file.acknowledge(token)

    def close(self) -> None:
        """End a listing and a `wait` in progress. A subclass that overrides it calls `super().close()`."""
        self._closed.set()

    def _declared(self) -> tuple[Table, ...]:
        tables = checked_tables(self.tables())
        for table in tables:
            RowDigester(table)
        return tables

    def _folders(self) -> StateFolders:
        if "_state" not in self.__dict__:
            raise ConfigurationError(
                "no-state",
                f"{type(self).__name__} has no folder for its digests",
                fix="take a parameter `state` in __init__ and call super().__init__(state)",
            )
        return StateFolders(self._state)


def _parsed(position: Position) -> tuple[int, str]:
    match position:
        case [int(number), str(token)]:
            return number, token
    raise position_lost("it is no position of this adapter")
