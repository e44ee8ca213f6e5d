"""A Delta table, followed version by version through its change feed, with either reader (`delta.access`).

One version is one transaction. A version without changes of rows or columns, such as an optimize or a vacuum, is
skipped. If the feed has a gap (versions cleaned up or vacuumed, the feed switched off for a while, the table dropped
and created again) or cannot be read, the difference to what is remembered bridges it: one transaction from the last
version read to the newest. Consumers are not reset.
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
from adapters.spark_tables.delta.log import FEED_SETTING, DeltaCommit
from adapters.spark_tables.delta.memory import NO_BASE, DeltaMemory
from adapters.spark_tables.delta.table import shape_of
from adapters.spark_tables.difference.changed_rows import holds_copy, remove_copy
from adapters.spark_tables.difference.state import StateFolder
from adapters.spark_tables.position import DeltaPosition, lost
from adapters.spark_tables.rows.keys import UnusableKeys
from adapters.spark_tables.rows.shape import Shape, evolution
from adapters.spark_tables.rows.shapes import Shapes
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TablePosition, TableSnapshot, TableVersion
from changesource_sdk import Change, Check, Table
from changesource_sdk.toolkit import event, logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logger("spark-tables")


Passed: TypeAlias = tuple[DeltaPosition, TableVersion | None]
"""A position that was reached, and the changes up to it, if there are any."""


class DeltaSource:
    """One Delta table. Its state between two polls is only a cache of the table's log. One thread at a time."""

    def __init__(self, table: TableSettings, folder: str, access: DeltaAccess) -> None:
        self._settings = table
        self._shapes = Shapes(folder)
        self._memory = DeltaMemory(table, folder)
        self._access = access
        # The version that was opened last; `_newest_after` reuses it.
        self._opened: DeltaVersion | None = None
        # The position that the last poll reached, with the mark of its commit.
        self._seen: tuple[DeltaPosition, str] | None = None
        # A position of the log, and the later one up to which there were no changes: the log does not have the latter.
        self._passed: tuple[DeltaPosition, DeltaPosition] | None = None
        self._last_gap = ""  # reason that was logged last, to log each once
        # The newest version when the table's keys were bad, its mark and the error; until there is another version.
        self._refused: tuple[int, str | None, UnusableKeys] | None = None
        # Whether the next poll probably needs Spark jobs; `_positions` sets it when the feed breaks or works again.
        self.takes_jobs = table.takes_jobs

    def table(self) -> Table:
        return self._newest_shape().table

    def snapshot(self) -> TableSnapshot:
        """The newest version, in partitions; also remembers it as a base."""
        self._refuse_again()
        opened = self._newest()
        with self._refusing(opened):
            return self._snapshot(opened, self._shape(opened))

    def _snapshot(self, opened: DeltaVersion, shape: Shape) -> TableSnapshot:
        divided_rows = opened.divided_rows(shape)
        if divided_rows is None:
            return self._copied(opened, shape)
        position = self._position(opened, shape, self._memory.begin(lambda: opened.frame(self._memory.session, shape)))
        can_resume = partial(_is_there, divided_rows.are_there, position.base, self._memory.folder)
        return TableSnapshot(position.to_json(), shape.table, divided_rows.parts, can_resume)

    def _copied(self, opened: DeltaVersion, shape: Shape) -> TableSnapshot:
        """A version whose rows only a session can read: a copy of them, until the snapshot is closed."""
        base, partitions = self._memory.copy(opened.frame(self._memory.session, shape), shape)
        position, folder = self._position(opened, shape, base).to_json(), self._memory.folder
        can_resume, close = partial(holds_copy, folder, base), partial(remove_copy, folder, base)
        return TableSnapshot(position, shape.table, partitions, can_resume, close)

    def _position(self, opened: DeltaVersion, shape: Shape, base: int) -> DeltaPosition:
        return DeltaPosition(opened.id, opened.number, self._shapes.keep(shape), base)

    def poll(self, after: TablePosition) -> Iterator[TableVersion]:
        """The versions after a position."""
        requested = position = DeltaPosition.from_json(after, self._settings.where)
        if self._passed is not None and self._passed[0] == requested:
            position = self._passed[1]
        if not self._is_new(position):
            return
        self._refuse_again()
        for reached, version in self._positions(position):
            position = reached
            self._seen = self._marked(position)
            if version is not None:
                yield version
                requested = position
        self._passed = requested, position

    def _positions(self, position: DeltaPosition) -> Iterator[Passed]:
        """Every position up to the newest version: by the feed, then by a difference if the feed has a gap."""
        try:
            for reached, version in self._feed(position):
                position = reached
                yield reached, version
            self.takes_jobs = self._settings.takes_jobs
        except Gap as gap:
            self._report_gap(str(gap))
            self.takes_jobs = True
            yield self._bridge(position)

    @contextmanager
    def _refusing(self, opened: DeltaVersion) -> Iterator[None]:
        """Remember that the keys of a version are bad, for `_refuse_again`."""
        try:
            yield
        except UnusableKeys as error:
            self._refused = opened.number, self._access.mark(opened.number), error
            raise

    def _refuse_again(self) -> None:
        """Raise the error of the keys again while there is no other version.

        Checking them again would cost Spark jobs.
        """
        if self._refused is None:
            return
        number, mark, error = self._refused
        if mark is not None and self._access.mark(number) == mark and self._access.mark(number + 1) is None:
            raise error.with_traceback(None)
        self._refused = None

    def _report_gap(self, gap: str) -> None:
        if gap != self._last_gap:
            what = "the difference is taken in place of the change feed"
            event(_log, logging.INFO, what, table=self._settings.name, reason=gap)
        self._last_gap = gap

    def acknowledge(self, position: TablePosition) -> None:
        """Delete earlier bases."""
        reached = DeltaPosition.from_json(position, self._settings.where)
        self._memory.forget_before(reached.base, reached.version)

    def examine(self) -> Iterable[Check]:
        """The checks of `changesource doctor` for this table."""
        return table_checks(self._settings, self._newest_shape, self._newest_frame, self._feed_check())

    def _newest_shape(self) -> Shape:
        return self._shape(self._newest())

    def _newest_frame(self) -> DataFrame:
        opened = self._newest()
        return opened.frame(self._memory.session, self._shape(opened))

    def _feed_check(self) -> Iterator[Check]:
        gap = self._no_feed(self._newest())
        how = f"differences are computed at each look: {gap}" if gap else "changes come from the change feed"
        yield Check(self._settings.where, True, how)

    def _is_new(self, position: DeltaPosition) -> bool:
        """Whether there may be something after a position; reads the metadata of two files if there is not."""
        if self._access.mark(position.version + 1) is not None:
            return True
        if self._is_where_it_was(position):
            return False
        opened = self._newest()
        if (opened.id, opened.number) != (position.id, position.version):
            return True
        self._seen = self._marked(position)
        return False

    def _marked(self, position: DeltaPosition) -> tuple[DeltaPosition, str] | None:
        """A position with the mark of its commit."""
        mark = self._access.mark(position.version)
        return None if mark is None else (position, mark)

    def _is_where_it_was(self, position: DeltaPosition) -> bool:
        """Whether the commit of a position is still the same: the table was not created again."""
        return self._seen is not None and self._seen == self._marked(position)

    def _newest(self) -> DeltaVersion:
        self._opened = self._access.open()
        return self._opened

    def _newest_after(self, position: DeltaPosition) -> DeltaVersion:
        """The newest version, cheaper if the table was not created again."""
        if self._opened is None or not self._is_where_it_was(position):
            return self._newest()
        self._opened = self._access.moved_on(self._opened)
        return self._opened

    def _shape(self, opened: DeltaVersion) -> Shape:
        return shape_of(self._settings, opened.schema)

    def _feed(self, position: DeltaPosition) -> Iterator[Passed]:
        """The versions after a position, one by one, as long as the feed has them. Raises `Gap`."""
        opened = self._newest_after(position)
        if opened.id != position.id:
            raise Gap("the table was dropped and created again")
        if opened.number < position.version:
            raise Gap(f"the table went back to version {opened.number}")
        if gap := self._no_feed(opened):
            raise Gap(gap)
        for number in range(position.version + 1, opened.number + 1):
            commit = self._access.commit(number)
            if commit is None:
                raise Gap(f"version {number} is no longer in the table's log")
            position, version = self._version(opened, position, commit)
            yield position, version

    def _no_feed(self, opened: DeltaVersion) -> str:
        """Why the table's feed is not followed; empty if it is."""
        if not self._settings.change_feed:
            return "the settings say so"
        if opened.properties.get(FEED_SETTING) != "true":
            return f"the table has no change feed; {FEED_SETTING} = true would give it one"
        return opened.unreadable_feed()

    def _version(self, opened: DeltaVersion, position: DeltaPosition, commit: DeltaCommit) -> Passed:
        """The position after a commit, and its changes, if any. Raises `Gap`."""
        shape, now = self._shapes.get(position.shape), replace(position, version=commit.version)
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
            if gap := opened.unreadable_feed(commit):
                raise Gap(gap)
            changes = self._rows(opened, shape, now, moved.rewritten)
        return now, _nonempty(now, commit.time_ms or _now_ms(), moved.changes, changes)

    def _rows(self, opened: DeltaVersion, shape: Shape, position: DeltaPosition, rewritten: bool) -> Iterable[Change]:
        """The row changes of a version; also writes down the keys that it touched."""
        then = opened if self._shape(opened) == shape else self._access.open(position.version)

        def feed(predicate: str | None = None) -> Iterator[pa.RecordBatch]:
            # Parts are read later, when `then` may have been updated to a newer version: open the version again.
            table = then if predicate is None else self._access.open(position.version)
            return table.feed(position.version, predicate)

        self._memory.touch(
            position.base, position.version, then.feed(position.version, columns=[*shape.key, CHANGE_TYPE])
        )
        try:
            return feed_changes(shape, feed, rewritten=rewritten)
        except UnusableFeed as error:
            raise Gap(f"in version {position.version} {error}") from error

    def _bridge(self, position: DeltaPosition) -> Passed:
        """The difference from a position to the newest version, as one version."""
        opened = self._newest()
        old, new = self._shapes.get(position.shape), self._shape(opened)
        moved = evolution(old, new) if opened.id == position.id else evolution(old.by_name(), new.by_name())
        if moved.emptied:
            raise lost("the key's columns are others", self._settings.where)
        base = self._memory.base(position.base, position.version, lambda: self._former(position))
        frame = opened.frame(self._memory.session, new)
        with self._refusing(opened):
            differing = self._memory.difference(base, new, frame, rewritten=moved.rewritten)
        now = self._position(opened, new, differing.number)
        return now, _nonempty(now, _now_ms(), moved.changes, differing.changes)

    def _former(self, position: DeltaPosition) -> DataFrame:
        """The rows at a position."""
        opened = self._access.open(position.version)
        if opened.id != position.id:
            raise lost("the table was dropped and created again", self._settings.where)
        return opened.frame(self._memory.session, self._shape(opened))


def _is_there(are_there: Callable[[], bool], base: int, folder: str) -> bool:
    """Whether all rows of a version and its remembered base still exist."""
    return are_there() and (base == NO_BASE or StateFolder(folder).load(base) is not None)


def _now_ms() -> float:
    return time.time() * 1000


def _nonempty(
    position: DeltaPosition, time_ms: float, shaping: Iterable[Change], rows: Iterable[Change]
) -> TableVersion | None:
    """A version, or None if it changed nothing."""
    stream = iter(rows)
    first = next(stream, None)
    changes = [*shaping, *([] if first is None else [first])]
    return TableVersion(position.to_json(), _chained(changes, stream), time_ms) if changes else None


def _chained(first: Iterable[Change], rest: Iterator[Change]) -> Iterator[Change]:
    yield from first
    yield from rest
