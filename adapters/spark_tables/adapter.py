"""Any tables that Spark can read, behind Zero.

Settings: `tables`, one section per table (`settings`); `state`, a folder for what is remembered of them, by default one
in the state directory of `serve`. Each table has a source that finds its changes: Delta's change feed, or the
difference to what is remembered, which Spark computes. The adapter merges their versions (`tail`).

Differences are Spark jobs, so `changes` runs where the session is (`uses_spark`): in the driver. Tables whose changes
are found without jobs are polled one after the other. Each of the others is polled in its own thread (`polls`), so that
the rest does not wait for it.

A table that cannot be followed has a warning and is polled again (`failures`). Its position does not move, so nothing
of it is lost, and the other tables continue. A table that the snapshot cannot read arrives later (`snapshot`). The
adapter fails only if all tables fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from adapters.spark_tables.delta.choice import DeltaReader, open_access
from adapters.spark_tables.delta.source import DeltaSource
from adapters.spark_tables.delta.table import located
from adapters.spark_tables.difference.source import DifferenceSource
from adapters.spark_tables.failures import Failures
from adapters.spark_tables.polls import Polls
from adapters.spark_tables.position import SparkTablesPosition
from adapters.spark_tables.readers.contract import TableReader
from adapters.spark_tables.readers.files_and_jdbc import FolderReader, JdbcReader
from adapters.spark_tables.readers.iceberg import IcebergReader
from adapters.spark_tables.readers.query import QueryReader
from adapters.spark_tables.rows.shapes import table_folder
from adapters.spark_tables.settings import TableSettings, read_tables
from adapters.spark_tables.snapshot import arrival, is_absent, take_snapshot
from adapters.spark_tables.source import TableMissing, TablePosition, TableSource, TableVersion
from adapters.spark_tables.tail import TableStep, interleaved, steps, transaction
from changesource_sdk import (
    AdapterError,
    ChangesourceError,
    Check,
    ConfigurationError,
    Position,
    ResyncRequired,
    Snapshot,
    Table,
    Transaction,
)

GROUP_ROUNDS = 3
"""A group is polled again while there is something new, so that writes to several tables in a row arrive together."""
MOST_STEPS = 16
"""Versions that one poll in a thread returns; the rest is left to the next poll."""
LONGEST_CALL_S = 10.0
"""How long `changes` waits for polls in progress."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Tables that are polled together: a single one, or a group."""

    name: str
    tables: tuple[TableSettings, ...]
    is_group: bool


class SparkTablesAdapter:
    """Reads tables by their sources. Picklable: sources are opened when they are first needed."""

    uses_spark = True

    def __init__(self, tables: object = (), state: str = "changesource-state/spark-tables", **dotted: object) -> None:
        self._tables = read_tables(tables or {}, dotted)
        self._state = str(state)
        self.poll_interval = min(table.poll for table in self._tables)
        self._initialise_state()

    def _initialise_state(self) -> None:
        # Everything below is used in the thread of `changes`, except `_acknowledged` and what `_source` opens.
        self._units = _units(self._tables)
        self._opened: dict[str, TableSource] = {}  # by table; `_source` adds, also in the threads of polls
        self._due: dict[str, float] = {}  # by unit: when to poll again, in monotonic seconds
        self._failures = Failures()  # tables that cannot be followed at present
        self._is_failing = False  # whether a poll failed in the present round of `changes`
        self._polls = Polls()  # polls in progress that need Spark jobs
        self._acknowledged: dict[str, TablePosition] = {}  # by table; `acknowledge` writes it, in its own thread

    def __getstate__(self) -> dict[str, Any]:
        return {"_tables": self._tables, "_state": self._state, "poll_interval": self.poll_interval}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._initialise_state()

    def tables(self) -> Sequence[Table]:
        """The current tables, without those that cannot be read. Raises if none can."""
        readable: list[Table] = []
        errors: list[AdapterError] = []
        for table in self._tables:
            try:
                readable.append(self._source(table).table())
            except AdapterError as error:
                errors.append(error)
        if not readable:
            raise errors[0]
        return readable

    def snapshot(self) -> Snapshot:
        """Every table at its newest version, except those that cannot be read (`snapshot`)."""
        return take_snapshot(self._tables, self._source, self._failures)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The present versions of the tables that are due for a poll."""
        reached = SparkTablesPosition.from_json(after, self._tables)
        leave_at = time.monotonic() + LONGEST_CALL_S
        while True:
            self._is_failing = False
            for together in self._new_steps(reached):
                reached = reached.moved({step.table: step.version.position for step in together})
                yield transaction(together, reached.to_json(self._tables))
            if self._is_failing:
                self._raise_if_none_is_left()
            if not self._polls or time.monotonic() >= leave_at:
                return
            self._polls.wait(self.poll_interval)

    def _new_steps(self, reached: SparkTablesPosition) -> Iterator[Sequence[TableStep]]:
        """The steps of tables without jobs, and those that polls in threads have found, in the order of their times."""
        single: list[Iterator[TableStep]] = []
        groups: list[Sequence[TableStep]] = []
        for unit in self._now_due():
            if self._takes_jobs(unit, reached):
                positions = {table.name: reached.tables[table.name] for table in unit.tables}
                self._polls.start(unit.name, positions, partial(self._poll_unit, unit, reached, MOST_STEPS))
            elif unit.is_group:
                groups.append(self._noting_failure(unit, partial(self._poll_unit, unit, reached)))
            else:
                single.append(self._steps_noting_failure(unit, reached))
        for unit, steps_of_unit in self._finished_polls(reached):
            if unit.is_group:
                groups.append(steps_of_unit)
            else:
                single.append(iter(steps_of_unit))
        return interleaved(single, groups)

    def _finished_polls(self, reached: SparkTablesPosition) -> Iterator[tuple[Unit, Sequence[TableStep]]]:
        """The results of finished polls that started at the present positions of their tables."""
        units = {unit.name: unit for unit in self._units}
        for name, poll in self._polls.done():
            unit = units[name]
            self._due[name] = time.monotonic() + _pause(unit)
            steps_of_unit = self._noting_failure(unit, poll.result)
            if all(reached.tables[table] == position for table, position in poll.positions.items()):
                yield unit, steps_of_unit

    def _now_due(self) -> list[Unit]:
        """Units whose pause has ended and that have no poll in progress."""
        now = time.monotonic()
        due = [unit for unit in self._units if unit.name not in self._polls and self._due.get(unit.name, 0.0) <= now]
        self._due.update({unit.name: now + _pause(unit) for unit in due})
        return due

    def _takes_jobs(self, unit: Unit, reached: SparkTablesPosition) -> bool:
        """Whether polling a unit probably needs Spark jobs."""
        for table in unit.tables:
            opened = self._opened.get(table.name)
            if is_absent(reached.tables[table.name]):
                return True
            if table.takes_jobs if opened is None else opened.takes_jobs:
                return True
        return False

    def _poll_unit(self, unit: Unit, reached: SparkTablesPosition, most: int | None = None) -> list[TableStep]:
        """Everything that is new in a unit; at most `most` versions of a single table. Raises `_Failed`."""
        found_steps: list[TableStep] = []
        if not unit.is_group:
            try:
                found_steps.extend(islice(self._steps(unit.tables[0], reached), most))
            except _Failed:
                # Return what came before the error; the next poll meets the error first.
                if not found_steps:
                    raise
            return found_steps
        # A failing table first: a group moves together, so while one fails, the others need not be polled.
        members = sorted(unit.tables, key=lambda table: table.name not in self._failures)
        for _ in range(GROUP_ROUNDS):
            new = [step for table in members for step in self._steps(table, reached)]
            if not new:
                break
            found_steps += new
            reached = reached.moved({step.table: step.version.position for step in new})
        return found_steps

    def _steps(self, table: TableSettings, reached: SparkTablesPosition) -> Iterator[TableStep]:
        try:
            yield from steps(table.name, self._versions(table, reached.tables[table.name]))
        except ResyncRequired:
            raise
        except (AdapterError, ConfigurationError) as error:
            raise _Failed(table, error) from error

    def _versions(self, table: TableSettings, position: TablePosition) -> Iterator[TableVersion]:
        source = self._source(table)
        if is_absent(position):
            yield arrival(source, position, time.time() * 1000)
        else:
            yield from source.poll(position)

    def _noting_failure(self, unit: Unit, poll: Callable[[], Sequence[TableStep]]) -> Sequence[TableStep]:
        """The steps of a poll; empty if a table of the unit fails, which is noted."""
        try:
            found_steps = poll()
        except _Failed as failed:
            self._note(unit, failed)
            return []
        self._note_well(unit)
        return found_steps

    def _steps_noting_failure(self, unit: Unit, reached: SparkTablesPosition) -> Iterator[TableStep]:
        """The same, step by step: those before an error are yielded."""
        try:
            yield from self._steps(unit.tables[0], reached)
        except _Failed as failed:
            self._note(unit, failed)
            return
        self._note_well(unit)

    def _note(self, unit: Unit, failed: _Failed) -> None:
        self._is_failing = True
        self._due[unit.name] = time.monotonic() + self._failures.note(failed.table, failed.error)

    def _note_well(self, unit: Unit) -> None:
        for table in unit.tables:
            self._failures.over(table)

    def _raise_if_none_is_left(self) -> None:
        """Raise if all tables fail. Tables that do not exist are no error as long as others may come back."""
        errors = [error for error in self._failures.errors() if not isinstance(error, TableMissing)]
        if errors and len(self._failures.errors()) == len(self._tables):
            raise errors[0]

    def acknowledge(self, position: Position) -> None:
        """Let each source delete what only earlier positions need."""
        reached = SparkTablesPosition.from_json(position, self._tables)
        for table in self._tables:
            table_position = reached.tables[table.name]
            if self._acknowledged.get(table.name) != table_position and not is_absent(table_position):
                self._source(table).acknowledge(table_position)
            self._acknowledged[table.name] = table_position

    def examine(self) -> Iterable[Check]:
        """The checks of `changesource doctor`, table by table."""
        for table in self._tables:
            try:
                yield from self._source(table).examine()
            except ChangesourceError as error:
                yield Check(table.where, False, error.message, error.fix)

    def _source(self, table: TableSettings) -> TableSource:
        if table.name not in self._opened:
            self._opened[table.name] = open_source(table, table_folder(self._state, table), self._tables)
        return self._opened[table.name]


class _Failed(Exception):
    """A table of a unit cannot be followed at present."""

    def __init__(self, table: TableSettings, error: ChangesourceError) -> None:
        super().__init__(table, error)
        self.table = table
        self.error = error


def _units(tables: Sequence[TableSettings]) -> list[Unit]:
    """Single tables and groups, in the order of the settings."""
    members: dict[tuple[bool, str], list[TableSettings]] = {}
    for table in tables:
        members.setdefault((bool(table.group), table.group or table.name), []).append(table)
    return [
        Unit(f"group {name}" if is_group else name, tuple(members_of_unit), is_group)
        for (is_group, name), members_of_unit in members.items()
    ]


def _pause(unit: Unit) -> float:
    """Seconds between two polls: a group is due when its first table is."""
    return min(table.poll for table in unit.tables)


def open_source(table: TableSettings, folder: str, tables: Sequence[TableSettings]) -> TableSource:
    """The source of a table. `folder` is its state folder; `tables` are all tables, since a query may name others."""
    if table.kind == "delta":
        located_table = located(table)
        return DeltaSource(located_table, folder, open_access(located_table))
    return DifferenceSource(table, folder, open_reader(table, tables))


def open_reader(table: TableSettings, tables: Sequence[TableSettings]) -> TableReader:
    """Reads the current rows of a table. A query may name any other table, but no other query."""
    match table.kind:
        case "delta":
            located_table = located(table)
            return DeltaReader(located_table, open_access(located_table))
        case "iceberg":
            return IcebergReader(table)
        case "jdbc":
            return JdbcReader(table)
        case "query":
            return QueryReader(table, {other.name: open_reader(other, ()) for other in tables if other.kind != "query"})
    return FolderReader(table)
