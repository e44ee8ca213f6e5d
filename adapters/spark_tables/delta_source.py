"""A Delta table, followed version by version through its change feed, without Spark's Delta jars.

One version is one transaction. A version that changed no row and no column, such as an optimize or a vacuum, is passed
over. Where the feed has a gap (versions cleaned up or vacuumed, the feed switched off meanwhile, the table dropped and
made again) or cannot be read (column mapping), the difference to what is remembered bridges it: one transaction
from the last version read to the newest. Consumers are not reset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from adapters.spark_tables.checks import table_checks
from adapters.spark_tables.delta_feed import CHANGE_TYPE, UnusableFeed, feed_changes
from adapters.spark_tables.delta_log import FEED_SETTING, Commit, DeltaLog
from adapters.spark_tables.delta_memory import NO_BASE, DeltaMemory
from adapters.spark_tables.delta_place import DeltaPlace
from adapters.spark_tables.delta_shares import frame_of, has_all_files, shares
from adapters.spark_tables.delta_table import configuration, maps_columns, open_table, reading, shape_of
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.shape import Shape, evolution
from adapters.spark_tables.shapes import Shapes
from adapters.spark_tables.source import TableSnapshot, TableVersion, Token
from adapters.spark_tables.state import StateFolder
from adapters.spark_tables.versions import lost
from changesource_sdk.adapter import Change, Check, Table
from changesource_sdk.errors import AdapterError
from changesource_sdk.observe.logs import event, logger

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_log = logger("spark-tables")


Passed: TypeAlias = tuple[DeltaPlace, TableVersion | None]
"""A place that was reached, and what there is to tell about the way."""


class _Gap(Exception):
    """The feed does not lead on from here, and why."""


class DeltaSource:
    """One Delta table. What it holds between two looks is only a cache of what the table's log says."""

    def __init__(self, table: TableSettings, folder: str) -> None:
        self._settings = table
        self._shapes = Shapes(folder)
        self._memory = DeltaMemory(table, folder)
        self._log = DeltaLog(table.location, table.options)
        self._opened: DeltaTable | None = None
        self._seen: tuple[DeltaPlace, str] | None = None
        self._passed: tuple[DeltaPlace, DeltaPlace] | None = None
        self._last_gap = ""

    def table(self) -> Table:
        """The table as it is now."""
        return self._newest_shape().table

    def snapshot(self) -> TableSnapshot:
        """The newest version, remembered and in shares."""
        found = open_table(self._settings)
        shape = self._shape(found)
        parts = shares(self._settings, found, shape)
        base = self._memory.begin(lambda: frame_of(self._memory.session, shape, parts))
        place = DeltaPlace(str(found.metadata().id), found.version(), self._shapes.keep(shape), base)
        can_resume = partial(_is_there, self._settings, place, self._memory.folder)
        return TableSnapshot(place.token(), shape.table, parts, can_resume)

    def poll(self, after: Token) -> Iterator[TableVersion]:
        """The versions after a token."""
        asked = place = DeltaPlace.at(after, self._settings.where)
        if self._passed is not None and self._passed[0] == asked:
            place = self._passed[1]
        if not self._is_new(place):
            return
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
        except _Gap as gap:
            self._tell(str(gap))
            yield self._bridge(place)

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
        return self._frame(self._newest().version())

    def _feed_check(self) -> Iterator[Check]:
        gap = self._no_feed(self._newest())
        how = f"differences are computed at each look: {gap}" if gap else "changes come from the change feed"
        yield Check(self._settings.where, True, how)

    def _is_new(self, place: DeltaPlace) -> bool:
        """Whether there may be something after a place; costs two looks at files if there is not."""
        if self._log.mark(place.version + 1) is not None:
            return True
        if self._is_where_it_was(place):
            return False
        found = self._newest()
        if (str(found.metadata().id), found.version()) != (place.id, place.version):
            return True
        self._seen = self._marked(place)
        return False

    def _marked(self, place: DeltaPlace) -> tuple[DeltaPlace, str] | None:
        """A place, and what tells its commit from another one of the same number."""
        mark = self._log.mark(place.version)
        return None if mark is None else (place, mark)

    def _is_where_it_was(self, place: DeltaPlace) -> bool:
        """Whether the commit of a place is the one that was seen there: the table was not made anew."""
        return self._seen is not None and self._seen == self._marked(place)

    def _newest(self) -> DeltaTable:
        self._opened = open_table(self._settings)
        return self._opened

    def _newest_after(self, place: DeltaPlace) -> DeltaTable:
        """The same; where it only moved on, the commits since are read and not the whole table's files."""
        if self._opened is None or not self._is_where_it_was(place):
            return self._newest()
        with reading(self._settings):
            self._opened.update_incremental()
        return self._opened

    def _shape(self, found: DeltaTable) -> Shape:
        return shape_of(self._settings, found.schema().to_json())

    def _feed(self, place: DeltaPlace) -> Iterator[Passed]:
        """Versions after a place, one by one, as long as the feed tells them."""
        found = self._newest_after(place)
        if str(found.metadata().id) != place.id:
            raise _Gap("the table was made anew")
        if found.version() < place.version:
            raise _Gap(f"the table went back to version {found.version()}")
        if gap := self._no_feed(found):
            raise _Gap(gap)
        for number in range(place.version + 1, found.version() + 1):
            commit = self._log.read(number)
            if commit is None:
                raise _Gap(f"version {number} is no longer in the table's log")
            place, version = self._version(found, place, commit)
            yield place, version

    def _no_feed(self, found: DeltaTable) -> str:
        """Why the table's feed is not followed; empty if it is."""
        if not self._settings.change_feed:
            return "the settings say so"
        if configuration(found).get(FEED_SETTING) != "true":
            return f"the table has no change feed; {FEED_SETTING} = true would give it one"
        return "the feed cannot be read where columns are mapped" if maps_columns(found) else ""

    def _version(self, found: DeltaTable, place: DeltaPlace, commit: Commit) -> Passed:
        """The place after a commit, and what it changed, if anything."""
        shape, now = self._shapes.get(place.shape), replace(place, version=commit.version)
        moved = evolution(shape, shape)
        if commit.metadata is not None:
            if commit.metadata.get("configuration", {}).get(FEED_SETTING) != "true":
                raise _Gap(f"the feed was off at version {commit.version}")
            new = shape_of(self._settings, commit.metadata["schemaString"])
            moved = evolution(shape, new)
            shape, now = new, replace(now, shape=self._shapes.keep(new))
        if moved.emptied or (moved.rewritten and not commit.has_rows):
            raise _Gap(f"the columns were rewritten at version {commit.version}")
        changes: Iterable[Change] = ()
        if commit.has_rows:
            if commit.has_vectors and not commit.has_feed:
                raise _Gap(f"version {commit.version} tells files and not rows")
            changes = self._rows(found, shape, now, moved.rewritten)
        return now, _nonempty(now, commit.time_ms or _now_ms(), moved.changes, changes)

    def _rows(self, found: DeltaTable, shape: Shape, place: DeltaPlace, rewritten: bool) -> Iterable[Change]:
        """The row changes of a version, its keys written down."""
        then = found if self._shape(found) == shape else open_table(self._settings, place.version)

        def feed(predicate: str | None = None) -> Iterator[pa.RecordBatch]:
            # What is asked for in parts is read later, when the table at hand may have moved on.
            table = then if predicate is None else open_table(self._settings, place.version)
            return _feed_of(table, place.version, predicate)

        self._memory.touch(place.base, place.version, _feed_of(then, place.version, None, [*shape.key, CHANGE_TYPE]))
        try:
            return feed_changes(shape, feed, rewritten=rewritten)
        except UnusableFeed as error:
            raise _Gap(f"in version {place.version} {error}") from error

    def _bridge(self, place: DeltaPlace) -> Passed:
        """From a place to the newest version at once."""
        found = self._newest()
        old, new = self._shapes.get(place.shape), self._shape(found)
        moved = evolution(old, new)
        if moved.emptied:
            raise lost("the key's columns are others", self._settings.where)
        base = self._memory.base(place.base, place.version, lambda: self._frame(place.version, place.id))
        differing = self._memory.difference(base, new, self._frame(found.version()), rewritten=moved.rewritten)
        now = DeltaPlace(str(found.metadata().id), found.version(), self._shapes.keep(new), differing.number)
        return now, _nonempty(now, _now_ms(), moved.changes, differing.changes)

    def _frame(self, version: int, made_as: str | None = None) -> DataFrame:
        """The table at a version; with `made_as`, of the table of that id."""
        found = open_table(self._settings, version)
        if made_as not in (None, str(found.metadata().id)):
            raise lost("the table was made anew", self._settings.where)
        shape = self._shape(found)
        return frame_of(self._memory.session, shape, shares(self._settings, found, shape))


def _is_there(table: TableSettings, place: DeltaPlace, folder: str) -> bool:
    """Whether a version can still be read, whole, and what is remembered of it, too."""
    try:
        found = open_table(table, place.version)
    except AdapterError:
        return False
    is_known = place.base == NO_BASE or StateFolder(folder).load(place.base) is not None
    return is_known and str(found.metadata().id) == place.id and has_all_files(table, found)


def _now_ms() -> float:
    return time.time() * 1000


def _feed_of(
    found: DeltaTable, version: int, predicate: str | None, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The feed of one version; what cannot be read is a gap."""
    from deltalake.exceptions import DeltaError

    try:
        stream = found.load_cdf(version, version, columns=columns, predicate=predicate)
        yield from pa.RecordBatchReader.from_stream(stream)
    except (DeltaError, pa.ArrowInvalid, OSError) as error:
        raise _Gap(f"version {version} cannot be read: {str(error).splitlines()[0]}") from error


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
