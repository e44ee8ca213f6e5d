"""Any tables that Spark can read, behind Zero.

Settings: `tables`, one section per table (`settings`); `state`, a folder for what is remembered of them, by default one
in the state directory of `serve`. Each table has a source that finds out what changed: Delta's change feed, or the
difference to what was there before, which Spark computes. The adapter puts their versions in order (`versions`).

Differences are Spark jobs, so `changes` is followed where the session is (`uses_spark`): in the driver. Tables whose
changes are found without jobs are looked at in turn; each of the others has its own thread while it is looked at
(`looks`), so that it keeps nobody waiting.

A table that cannot be followed is warned of and looked at again by itself (`troubles`): its token stays where it is, so
nothing of it is lost, and the others go on. One that a snapshot cannot read arrives later (`awaited`). Only if that is
so of all tables, it is the adapter's error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from adapters.spark_tables.awaited import arrival, awaited_token, is_awaited
from adapters.spark_tables.looks import Looks
from adapters.spark_tables.rows.keys import UnusableKeys
from adapters.spark_tables.rows.shapes import table_folder
from adapters.spark_tables.settings import TableSettings, read_tables
from adapters.spark_tables.source import TableMissing, TableSnapshot, TableSource, TableVersion, Token
from adapters.spark_tables.sources import open_source
from adapters.spark_tables.troubles import Troubles
from adapters.spark_tables.versions import Place, Step, interleaved, steps, transaction
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
"""A group is looked at again while something was found, so that writes to several tables in a row arrive together."""
MOST_STEPS = 16
"""Versions that one look in a thread brings; the rest is left to the next."""
LONGEST_CALL_S = 10.0
"""How long `changes` stays for looks in progress."""
SNAPSHOT_TRIES, SNAPSHOT_PAUSE_S = 3, 1.0


@dataclass(frozen=True, slots=True)
class Unit:
    """Tables that are looked at together: one by itself, or a group."""

    name: str
    tables: tuple[TableSettings, ...]
    is_group: bool


class SparkTablesAdapter:
    """Reads tables by their sources. Picklable: sources are opened when they are first asked for."""

    uses_spark = True

    def __init__(self, tables: object = (), state: str = "changesource-state/spark-tables", **dotted: object) -> None:
        self._tables = read_tables(tables or {}, dotted)
        self._state = str(state)
        self.poll_interval = min(table.poll for table in self._tables)
        self._reset()

    def _reset(self) -> None:
        self._units = _units(self._tables)
        self._opened: dict[str, TableSource] = {}
        self._due: dict[str, float] = {}  # by unit: when to look again, in monotonic seconds
        self._troubles = Troubles()
        self._is_failing = False  # whether a look failed in the present round of `changes`
        self._looks = Looks()
        self._acknowledged: dict[str, Token] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_tables": self._tables, "_state": self._state, "poll_interval": self.poll_interval}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def tables(self) -> Sequence[Table]:
        """The tables as they are now, as far as they can be read."""
        found: list[Table] = []
        errors: list[AdapterError] = []
        for table in self._tables:
            try:
                found.append(self._source(table).table())
            except AdapterError as error:
                errors.append(error)
        if not found:
            raise errors[0]
        return found

    def snapshot(self) -> Snapshot:
        """Every table at its newest version; a later process goes on with it while all these are still there."""
        found: list[TableSnapshot] = []
        tokens: dict[str, Token] = {}
        given: list[Table] = []
        try:
            for table in self._tables:
                try:
                    one = self._snapshot_of(table)
                except AdapterError as error:
                    self._troubles.note(table, error)
                    empty = [self._source(table).table()] if isinstance(error, UnusableKeys) else []
                    tokens[table.name] = awaited_token(*empty)
                    given += empty
                else:
                    found.append(one)
                    tokens[table.name] = one.token
                    given.append(one.table)
            if not found:
                raise self._troubles.errors()[0]
        except BaseException:
            _close_all([one.close for one in found if one.close is not None])
            raise
        return Snapshot(
            Place(tokens).position(self._tables),
            [partition for one in found for partition in one.partitions],
            given,
            close=partial(_close_all, [one.close for one in found if one.close is not None]),
            can_resume=partial(_can_all_resume, [one.can_resume for one in found]),
        )

    def _snapshot_of(self, table: TableSettings) -> TableSnapshot:
        """One table; what may be a moment's failure is tried again before the others go on without it."""
        for _ in range(SNAPSHOT_TRIES - 1):
            try:
                return self._source(table).snapshot()
            except (UnusableKeys, TableMissing):
                raise
            except AdapterError:
                time.sleep(SNAPSHOT_PAUSE_S)
        return self._source(table).snapshot()

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The versions that there are now of the tables that are due for a look."""
        place = Place.at(after, self._tables)
        leave_at = time.monotonic() + LONGEST_CALL_S
        while True:
            self._is_failing = False
            for together in self._found(place):
                place = place.moved(together)
                yield transaction(together, place.position(self._tables))
            if self._is_failing:
                self._raise_if_none_is_left()
            if not self._looks or time.monotonic() >= leave_at:
                return
            self._looks.wait(self.poll_interval)

    def _found(self, place: Place) -> Iterator[Sequence[Step]]:
        """What tables without jobs have now, and what looks in threads have brought, in the order of their times."""
        single: list[Iterator[Step]] = []
        groups: list[Sequence[Step]] = []
        for unit in self._now_due():
            if self._takes_jobs(unit, place):
                tokens = {table.name: place.tokens[table.name] for table in unit.tables}
                self._looks.start(unit.name, tokens, partial(self._look, unit, place, MOST_STEPS))
            elif unit.is_group:
                groups.append(self._watched(unit, partial(self._look, unit, place)))
            else:
                single.append(self._watched_steps(unit, place))
        for unit, found in self._brought(place):
            if unit.is_group:
                groups.append(found)
            else:
                single.append(iter(found))
        return interleaved(single, groups)

    def _brought(self, place: Place) -> Iterator[tuple[Unit, Sequence[Step]]]:
        """The results of looks that are done, as far as they follow a place."""
        units = {unit.name: unit for unit in self._units}
        for name, look in self._looks.done():
            unit = units[name]
            self._due[name] = time.monotonic() + _pause(unit)
            found = self._watched(unit, look.result)
            if all(place.tokens[table] == token for table, token in look.tokens.items()):
                yield unit, found

    def _now_due(self) -> list[Unit]:
        """Units whose pause is over and that are not being looked at."""
        now = time.monotonic()
        due = [unit for unit in self._units if unit.name not in self._looks and self._due.get(unit.name, 0.0) <= now]
        self._due.update({unit.name: now + _pause(unit) for unit in due})
        return due

    def _takes_jobs(self, unit: Unit, place: Place) -> bool:
        """Whether looking at a unit is expected to take jobs of Spark."""
        for table in unit.tables:
            opened = self._opened.get(table.name)
            if is_awaited(place.tokens[table.name]):
                return True
            if table.takes_jobs if opened is None else opened.takes_jobs:
                return True
        return False

    def _look(self, unit: Unit, place: Place, most: int | None = None) -> list[Step]:
        """All that is new in a unit, as far as it can be known at one moment. Raises `_Failed`."""
        found: list[Step] = []
        if not unit.is_group:
            try:
                found.extend(islice(self._steps(unit.tables[0], place), most))
            except _Failed:
                # What came before the trouble counts; the next look meets it first.
                if not found:
                    raise
            return found
        # One in trouble first: a group moves together, so as long as it lasts the others need not be looked at.
        members = sorted(unit.tables, key=lambda table: table.name not in self._troubles)
        for _ in range(GROUP_ROUNDS):
            new = [step for table in members for step in self._steps(table, place)]
            if not new:
                break
            found += new
            place = place.moved(new)
        return found

    def _steps(self, table: TableSettings, place: Place) -> Iterator[Step]:
        try:
            yield from steps(table.name, self._versions(table, place.tokens[table.name]))
        except ResyncRequired:
            raise
        except (AdapterError, ConfigurationError) as error:
            raise _Failed(table, error) from error

    def _versions(self, table: TableSettings, token: Token) -> Iterator[TableVersion]:
        source = self._source(table)
        if is_awaited(token):
            yield arrival(source, token, time.time() * 1000)
        else:
            yield from source.poll(token)

    def _watched(self, unit: Unit, look: Callable[[], Sequence[Step]]) -> Sequence[Step]:
        """What a look brings; nothing if a table of the unit is in trouble, which is noted."""
        try:
            found = look()
        except _Failed as failed:
            self._note(unit, failed)
            return []
        self._note_well(unit)
        return found

    def _watched_steps(self, unit: Unit, place: Place) -> Iterator[Step]:
        """The same step by step: those before the trouble count."""
        try:
            yield from self._steps(unit.tables[0], place)
        except _Failed as failed:
            self._note(unit, failed)
            return
        self._note_well(unit)

    def _note(self, unit: Unit, failed: _Failed) -> None:
        self._is_failing = True
        self._due[unit.name] = time.monotonic() + self._troubles.note(failed.table, failed.error)

    def _note_well(self, unit: Unit) -> None:
        for table in unit.tables:
            self._troubles.over(table)

    def _raise_if_none_is_left(self) -> None:
        """A source of which no table can be followed is one that fails; tables that are gone may come back."""
        errors = [error for error in self._troubles.errors() if not isinstance(error, TableMissing)]
        if errors and len(self._troubles.errors()) == len(self._tables):
            raise errors[0]

    def acknowledge(self, position: Position) -> None:
        """What earlier positions need may go."""
        place = Place.at(position, self._tables)
        for table in self._tables:
            token = place.tokens[table.name]
            if self._acknowledged.get(table.name) != token and not is_awaited(token):
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


class _Failed(Exception):
    """A table of a unit cannot be followed now."""

    def __init__(self, table: TableSettings, error: ChangesourceError) -> None:
        super().__init__(table, error)
        self.table = table
        self.error = error


def _units(tables: Sequence[TableSettings]) -> list[Unit]:
    """Tables by themselves and groups, in the order of the settings."""
    members: dict[tuple[bool, str], list[TableSettings]] = {}
    for table in tables:
        members.setdefault((bool(table.group), table.group or table.name), []).append(table)
    return [
        Unit(f"group {name}" if is_group else name, tuple(found), is_group)
        for (is_group, name), found in members.items()
    ]


def _pause(unit: Unit) -> float:
    """Seconds between two looks: a group is due when the first of it is."""
    return min(table.poll for table in unit.tables)


def _close_all(closing: Sequence[Callable[[], None]]) -> None:
    for close in closing:
        close()


def _can_all_resume(resuming: Sequence[Callable[[], bool]]) -> bool:
    return all(can_resume() for can_resume in resuming)
