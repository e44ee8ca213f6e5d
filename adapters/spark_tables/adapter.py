"""Any tables that Spark can read, behind Zero.

Settings: `tables`, one section per table (`settings`); `state`, a folder for what is remembered of them, by default one
in the state directory of `serve`. Each table has a source that finds out what changed: Delta's change feed, or the
difference to what was there before, which Spark computes. The adapter puts their versions in order (`versions`).

Differences are Spark jobs, so `changes` is followed where the session is (`uses_spark`): in the driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from adapters.spark_tables.settings import TableSettings, read_tables
from adapters.spark_tables.shapes import table_folder
from adapters.spark_tables.source import TableMissing, TableSource, TableVersion, Token
from adapters.spark_tables.sources import open_source
from adapters.spark_tables.versions import Place, Step, interleaved, steps, transaction
from changesource_sdk.adapter import Check, Position, Snapshot, Table, Transaction
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.observe.logs import event, logger

_log = logger("spark-tables")

GROUP_ROUNDS = 3
"""A group is looked at again while something was found, so that writes to several tables in a row arrive together."""


class SparkTablesAdapter:
    """Reads tables by their sources. Picklable: sources are opened when they are first asked for."""

    uses_spark = True

    def __init__(self, tables: object = (), state: str = "changesource-state/spark-tables", **dotted: object) -> None:
        self._tables = read_tables(tables or {}, dotted)
        self._state = str(state)
        self.poll_interval = min(table.poll for table in self._tables)
        self._reset()

    def _reset(self) -> None:
        self._opened: dict[str, TableSource] = {}
        self._due: dict[str, float] = {}
        self._absent: set[str] = set()
        self._acknowledged: dict[str, Token] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_tables": self._tables, "_state": self._state, "poll_interval": self.poll_interval}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def tables(self) -> Sequence[Table]:
        """The tables as they are now."""
        return [self._source(table).table() for table in self._tables]

    def snapshot(self) -> Snapshot:
        """Every table at its newest version; a later process goes on with it while all these are still there."""
        found = [self._source(table).snapshot() for table in self._tables]
        place = Place({table.name: one.token for table, one in zip(self._tables, found, strict=True)})
        return Snapshot(
            place.position(self._tables),
            [partition for one in found for partition in one.partitions],
            [one.table for one in found],
            close=partial(_close_all, [one.close for one in found if one.close is not None]),
            can_resume=partial(_can_all_resume, [one.can_resume for one in found]),
        )

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The versions that there are now of the tables that are due for a look."""
        place = Place.at(after, self._tables)
        due = self._now_due()
        groups: dict[str, list[TableSettings]] = {}
        for table in due:
            if table.group:
                groups.setdefault(table.group, []).append(table)
        single = [self._steps(table, place) for table in due if not table.group]
        for together in interleaved(single, [self._group(members, place) for members in groups.values()]):
            place = place.moved(together)
            yield transaction(together, place.position(self._tables))

    def _now_due(self) -> list[TableSettings]:
        """Tables whose pause is over; a group is due together, when the first of it is."""
        now = time.monotonic()
        first = {table.group or table.name for table in self._tables if self._due.get(table.name, 0.0) <= now}
        due = [table for table in self._tables if (table.group or table.name) in first]
        self._due.update({table.name: now + table.poll for table in due})
        return due

    def _group(self, members: Sequence[TableSettings], place: Place) -> list[Step]:
        """All that is new in a group, as far as it can be known at one moment."""
        found: list[Step] = []
        for _ in range(GROUP_ROUNDS):
            new = [step for table in members for step in self._steps(table, place)]
            if not new:
                break
            found += new
            place = place.moved(new)
        return found

    def _steps(self, table: TableSettings, place: Place) -> Iterator[Step]:
        return steps(table.name, self._poll(table, place.tokens[table.name]))

    def _poll(self, table: TableSettings, after: Token) -> Iterator[TableVersion]:
        """What a source has; a table that is not there now has nothing, and the others go on."""
        try:
            yield from self._source(table).poll(after)
            self._absent.discard(table.name)
        except TableMissing as error:
            if table.name not in self._absent:
                event(_log, logging.WARNING, error.message, table=table.name, fix=error.fix)
            self._absent.add(table.name)

    def acknowledge(self, position: Position) -> None:
        """What earlier positions need may go."""
        place = Place.at(position, self._tables)
        for table in self._tables:
            token = place.tokens[table.name]
            if self._acknowledged.get(table.name) != token:
                self._source(table).acknowledge(token)
                self._acknowledged[table.name] = token

    def examine(self) -> Iterable[Check]:
        """What stands in the way of syncing, table by table."""
        for table in self._tables:
            try:
                yield from self._source(table).examine()
            except ChangesourceError as error:
                yield Check(table.where, False, error.message, error.fix)

    def _source(self, table: TableSettings) -> TableSource:
        if table.name not in self._opened:
            self._opened[table.name] = open_source(table, table_folder(self._state, table), self._tables)
        return self._opened[table.name]


def _close_all(closing: Sequence[Callable[[], None]]) -> None:
    for close in closing:
        close()


def _can_all_resume(resuming: Sequence[Callable[[], bool]]) -> bool:
    return all(can_resume() for can_resume in resuming)
