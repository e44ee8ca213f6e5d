"""A Delta table, followed version by version through its change feed, with either reader (`delta.access`).

One version is one transaction. A version that changed no row and no column, such as an optimize or a vacuum, is passed
over. Where the feed has a gap (versions cleaned up or vacuumed, the feed switched off meanwhile, the table dropped and
made again) or cannot be read, the difference to what is remembered bridges it: one transaction from the last version
read to the newest. Consumers are not reset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from adapters.spark_tables.checks import table_checks
from adapters.spark_tables.delta.access import DeltaAccess, DeltaVersion, Gap
from adapters.spark_tables.delta.feed import CHANGE_TYPE, UnusableFeed, feed_changes
from adapters.spark_tables.delta.log import FEED_SETTING, Commit
from adapters.spark_tables.delta.memory import NO_BASE, DeltaMemory
from adapters.spark_tables.delta.position import DeltaPlace
from adapters.spark_tables.delta.table import shape_of
from adapters.spark_tables.difference.changed_rows import holds_copy, remove_copy
from adapters.spark_tables.difference.state import StateFolder
from adapters.spark_tables.rows.keys import UnusableKeys
from adapters.spark_tables.rows.shape import Shape, evolution
from adapters.spark_tables.rows.shapes import Shapes
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TableSnapshot, TableVersion, Token
from adapters.spark_tables.versions import lost
from changesource_sdk import Change, Check, Table
from changesource_sdk.toolkit import event, logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logger("spark-tables")


Passed: TypeAlias = tuple[DeltaPlace, TableVersion | None]
"""A place that was reached, and what there is to tell about the way."""


class DeltaSource:
    """One Delta table. What it holds between two looks is only a cache of what the table's log says."""

    def __init__(self, table: TableSettings, folder: str, access: DeltaAccess) -> None:
        self._settings = table
        self._shapes = Shapes(folder)
        self._memory = DeltaMemory(table, folder)
        self._access = access
        self._opened: DeltaVersion | None = None
        self._seen: tuple[DeltaPlace, str] | None = None
        self._passed: tuple[DeltaPlace, DeltaPlace] | None = None
        self._last_gap = ""
        # The newest version, with its mark, when the table's keys were bad.
        self._refused: tuple[int, str | None, UnusableKeys] | None = None
        self.takes_jobs = table.takes_jobs

    def table(self) -> Table:
        """The table as it is now."""
        return self._newest_shape().table

    def snapshot(self) -> TableSnapshot:
        """The newest version, remembered and in shares."""
        self._refuse_again()
        found = self._newest()
        with self._refusing(found):
            return self._snapshot(found, self._shape(found))

    def _snapshot(self, found: DeltaVersion, shape: Shape) -> TableSnapshot:
        shares = found.shares(shape)
        if shares is None:
            return self._copied(found, shape)
        place = self._place(found, shape, self._memory.begin(lambda: found.frame(self._memory.session, shape)))
        can_resume = partial(_is_there, shares.are_there, place.base, self._memory.folder)
        return TableSnapshot(place.token(), shape.table, shares.parts, can_resume)

    def _copied(self, found: DeltaVersion, shape: Shape) -> TableSnapshot:
        """A version whose rows only a session reads: from a copy that lives until the snapshot is closed."""
        base, shares = self._memory.copy(found.frame(self._memory.session, shape), shape)
        token, folder = self._place(found, shape, base).token(), self._memory.folder
        can_resume, close = partial(holds_copy, folder, base), partial(remove_copy, folder, base)
        return TableSnapshot(token, shape.table, shares, can_resume, close)

    def _place(self, found: DeltaVersion, shape: Shape, base: int) -> DeltaPlace:
        return DeltaPlace(found.id, found.number, self._shapes.keep(shape), base)

    def poll(self, after: Token) -> Iterator[TableVersion]:
        """The versions after a token."""
        asked = place = DeltaPlace.at(after, self._settings.where)
        if self._passed is not None and self._passed[0] == asked:
            place = self._passed[1]
        if not self._is_new(place):
            return
        self._refuse_again()
        for reached, version in self._places(place):
            place = reached
            self._seen = self._marked(place)
            if version is not None:
                yield version
                asked = place
        self._passed = asked, place

    def _places(self, place: DeltaPlace) -> Iterator[Passed]:
        """From place to place up to the newest version, by the feed as far as it leads."""
        try:
            for reached, version in self._feed(place):
                place = reached
                yield reached, version
            self.takes_jobs = self._settings.takes_jobs
        except Gap as gap:
            self._tell(str(gap))
            self.takes_jobs = True
            yield self._bridge(place)

    @contextmanager
    def _refusing(self, found: DeltaVersion) -> Iterator[None]:
        """Remember that the keys of a version are bad."""
        try:
            yield
        except UnusableKeys as error:
            self._refused = found.number, self._access.mark(found.number), error
            raise

    def _refuse_again(self) -> None:
        """Raise what was wrong with the keys, as long as there is no other version: looking again would cost jobs."""
        if self._refused is None:
            return
        number, mark, error = self._refused
        if mark is not None and self._access.mark(number) == mark and self._access.mark(number + 1) is None:
            raise error.with_traceback(None)
        self._refused = None

    def _tell(self, gap: str) -> None:
        if gap != self._last_gap:
            told = "the difference is taken in place of the change feed"
            event(_log, logging.INFO, told, table=self._settings.name, reason=gap)
        self._last_gap = gap

    def acknowledge(self, token: Token) -> None:
        """Earlier bases may go."""
        place = DeltaPlace.at(token, self._settings.where)
        self._memory.forget_before(place.base, place.version)

    def examine(self) -> Iterable[Check]:
        """What stands in the way of syncing the table."""
        return table_checks(self._settings, self._newest_shape, self._newest_frame, self._feed_check())

    def _newest_shape(self) -> Shape:
        return self._shape(self._newest())

    def _newest_frame(self) -> DataFrame:
        found = self._newest()
        return found.frame(self._memory.session, self._shape(found))

    def _feed_check(self) -> Iterator[Check]:
        gap = self._no_feed(self._newest())
        how = f"differences are computed at each look: {gap}" if gap else "changes come from the change feed"
        yield Check(self._settings.where, True, how)

    def _is_new(self, place: DeltaPlace) -> bool:
        """Whether there may be something after a place; costs two looks at files if there is not."""
        if self._access.mark(place.version + 1) is not None:
            return True
        if self._is_where_it_was(place):
            return False
        found = self._newest()
        if (found.id, found.number) != (place.id, place.version):
            return True
        self._seen = self._marked(place)
        return False

    def _marked(self, place: DeltaPlace) -> tuple[DeltaPlace, str] | None:
        """A place, and what tells its commit from another one of the same number."""
        mark = self._access.mark(place.version)
        return None if mark is None else (place, mark)

    def _is_where_it_was(self, place: DeltaPlace) -> bool:
        """Whether the commit of a place is the one that was seen there: the table was not made anew."""
        return self._seen is not None and self._seen == self._marked(place)

    def _newest(self) -> DeltaVersion:
        self._opened = self._access.open()
        return self._opened

    def _newest_after(self, place: DeltaPlace) -> DeltaVersion:
        """The same, at less cost where the table only moved on."""
        if self._opened is None or not self._is_where_it_was(place):
            return self._newest()
        self._opened = self._access.moved_on(self._opened)
        return self._opened

    def _shape(self, found: DeltaVersion) -> Shape:
        return shape_of(self._settings, found.schema)

    def _feed(self, place: DeltaPlace) -> Iterator[Passed]:
        """Versions after a place, one by one, as long as the feed tells them."""
        found = self._newest_after(place)
        if found.id != place.id:
            raise Gap("the table was made anew")
        if found.number < place.version:
            raise Gap(f"the table went back to version {found.number}")
        if gap := self._no_feed(found):
            raise Gap(gap)
        for number in range(place.version + 1, found.number + 1):
            commit = self._access.commit(number)
            if commit is None:
                raise Gap(f"version {number} is no longer in the table's log")
            place, version = self._version(found, place, commit)
            yield place, version

    def _no_feed(self, found: DeltaVersion) -> str:
        """Why the table's feed is not followed; empty if it is."""
        if not self._settings.change_feed:
            return "the settings say so"
        if found.properties.get(FEED_SETTING) != "true":
            return f"the table has no change feed; {FEED_SETTING} = true would give it one"
        return found.unreadable_feed()

    def _version(self, found: DeltaVersion, place: DeltaPlace, commit: Commit) -> Passed:
        """The place after a commit, and what it changed, if anything."""
        shape, now = self._shapes.get(place.shape), replace(place, version=commit.version)
        moved = evolution(shape, shape)
        if commit.metadata is not None:
            if commit.metadata.get("configuration", {}).get(FEED_SETTING) != "true":
                raise Gap(f"the feed was off at version {commit.version}")
            new = shape_of(self._settings, commit.metadata["schemaString"])
            moved = evolution(shape, new)
            shape, now = new, replace(now, shape=self._shapes.keep(new))
        if moved.emptied or (moved.rewritten and not commit.has_rows):
            raise Gap(f"the columns were rewritten at version {commit.version}")
        changes: Iterable[Change] = ()
        if commit.has_rows:
            if gap := found.unreadable_feed(commit):
                raise Gap(gap)
            changes = self._rows(found, shape, now, moved.rewritten)
        return now, _nonempty(now, commit.time_ms or _now_ms(), moved.changes, changes)

    def _rows(self, found: DeltaVersion, shape: Shape, place: DeltaPlace, rewritten: bool) -> Iterable[Change]:
        """The row changes of a version, its keys written down."""
        then = found if self._shape(found) == shape else self._access.open(place.version)

        def feed(predicate: str | None = None) -> Iterator[pa.RecordBatch]:
            # What is asked for in parts is read later, when the table at hand may have moved on.
            table = then if predicate is None else self._access.open(place.version)
            return table.feed(place.version, predicate)

        self._memory.touch(place.base, place.version, then.feed(place.version, columns=[*shape.key, CHANGE_TYPE]))
        try:
            return feed_changes(shape, feed, rewritten=rewritten)
        except UnusableFeed as error:
            raise Gap(f"in version {place.version} {error}") from error

    def _bridge(self, place: DeltaPlace) -> Passed:
        """From a place to the newest version at once."""
        found = self._newest()
        old, new = self._shapes.get(place.shape), self._shape(found)
        moved = evolution(old, new) if found.id == place.id else evolution(old.by_name(), new.by_name())
        if moved.emptied:
            raise lost("the key's columns are others", self._settings.where)
        base = self._memory.base(place.base, place.version, lambda: self._former(place))
        frame = found.frame(self._memory.session, new)
        with self._refusing(found):
            differing = self._memory.difference(base, new, frame, rewritten=moved.rewritten)
        now = self._place(found, new, differing.number)
        return now, _nonempty(now, _now_ms(), moved.changes, differing.changes)

    def _former(self, place: DeltaPlace) -> DataFrame:
        """The table as it was at a place."""
        found = self._access.open(place.version)
        if found.id != place.id:
            raise lost("the table was made anew", self._settings.where)
        return found.frame(self._memory.session, self._shape(found))


def _is_there(are_there: Callable[[], bool], base: int, folder: str) -> bool:
    """Whether a version can still be read, whole, and what is remembered of it, too."""
    return are_there() and (base == NO_BASE or StateFolder(folder).load(base) is not None)


def _now_ms() -> float:
    return time.time() * 1000


def _nonempty(
    place: DeltaPlace, time_ms: float, shaping: Iterable[Change], rows: Iterable[Change]
) -> TableVersion | None:
    """A version, unless it changed nothing."""
    stream = iter(rows)
    first = next(stream, None)
    changes = [*shaping, *([] if first is None else [first])]
    return TableVersion(place.token(), _chained(changes, stream), time_ms) if changes else None


def _chained(first: Iterable[Change], rest: Iterator[Change]) -> Iterator[Change]:
    yield from first
    yield from rest
