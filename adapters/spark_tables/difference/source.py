"""A table without a change feed: each poll compares it with what is remembered of it.

A position is the number of a version of the state and the name of its shape. If the fingerprint is unchanged, a poll
needs no Spark job. Digests are compared in addition to hashes after `full_compare` differences, and when the table has
not changed for `COMPARED_AT_REST_S` after one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from adapters.spark_tables.checks import table_checks
from adapters.spark_tables.difference.changed_rows import changes_of, holds_copy, inserts_of, partitions_of, remove_copy
from adapters.spark_tables.difference.compute import TableDifference, tuned
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from adapters.spark_tables.position import lost
from adapters.spark_tables.readers.contract import TableReader, reading
from adapters.spark_tables.readers.files_and_jdbc import BEING_WRITTEN
from adapters.spark_tables.rows.keys import UnusableKeys
from adapters.spark_tables.rows.shape import Shape, evolution
from adapters.spark_tables.rows.shapes import Shapes
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TablePosition, TableSnapshot, TableVersion
from adapters.spark_tables.types import travelling
from changesource_sdk import Change, Check, Table, Truncate
from changesource_sdk.toolkit import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMPARED_AT_REST_S = 3600.0


class DifferenceSource:
    """A `TableSource` over a reader. Invariant: a position names a complete version and a stored shape."""

    takes_jobs = True

    def __init__(
        self, table: TableSettings, folder: str, reader: TableReader, clock: Callable[[], float] = time.time
    ) -> None:
        self._table = table
        self._folder = StateFolder(folder, clock)
        self._shapes = Shapes(folder)
        self._reader = reader
        self._clock = clock
        self._current: StateVersion | None = None  # the version of the last poll, to avoid reading its file again
        self._is_swept = False  # whether this process has deleted versions that never became durable
        self._refused: tuple[str, UnusableKeys] | None = None  # fingerprint and error of a table with bad keys

    @cached_property
    def _difference(self) -> TableDifference:
        return TableDifference(tuned(spark_session()), self._folder, self._table.name, self._table.key, self._clock)

    def table(self) -> Table:
        return self._read_table()[1].table

    def snapshot(self) -> TableSnapshot:
        """All rows, from a copy that exists until the snapshot is closed; until then it can be resumed."""
        fingerprint = self._reader.fingerprint(self._difference.session)
        with self._refusing(fingerprint):
            frame, shape = self._read_table()
            with reading(self._table):
                version = self._difference.begin(frame, _settled(fingerprint))
        position: TablePosition = [version.number, self._shapes.keep(shape)]
        partitions = partitions_of(self._folder, version, shape)
        root, number = self._folder.root, version.number
        return TableSnapshot(
            position,
            shape.table,
            partitions,
            partial(holds_copy, root, number),
            close=partial(remove_copy, root, number),
        )

    def poll(self, after: TablePosition) -> Iterator[TableVersion]:
        """One version, if the table has changed."""
        version, shape_name = self._remembered(after)
        fingerprint = self._reader.fingerprint(self._difference.session)
        digests = self._is_compare_due(version)
        if fingerprint == BEING_WRITTEN:
            return
        if fingerprint is not None and fingerprint == version.fingerprint and not digests:
            self._current = self._difference.compact_if_crowded(version)
            return
        with self._refusing(fingerprint):
            next_version = self._version_after(version, self._shapes.get(shape_name), fingerprint, digests)
        if next_version is not None:
            yield next_version

    @contextmanager
    def _refusing(self, fingerprint: str | None) -> Iterator[None]:
        """Do not read a table with bad keys again while its fingerprint is the same: raise the same error."""
        if self._refused is not None and fingerprint == self._refused[0]:
            raise self._refused[1].with_traceback(None)
        try:
            yield
        except UnusableKeys as error:
            self._refused = None if fingerprint is None else (fingerprint, error)
            raise
        self._refused = None

    def acknowledge(self, position: TablePosition) -> None:
        """Delete the versions before this one."""
        match position:
            case [int(number), str()]:
                self._folder.forget_before(number)

    def examine(self) -> Iterable[Check]:
        """The checks of `changesource doctor` for this table."""
        return table_checks(self._table, lambda: self._read_table()[1], lambda: self._read_table()[0])

    def _read_table(self) -> tuple[DataFrame, Shape]:
        """The rows in the columns that are synced, and the shape of all columns."""
        frame = self._reader.frame(self._difference.session)
        with reading(self._table):
            shape = Shape(self._table.name, frame.schema, self._table.key)
            return travelling(frame), shape

    def _remembered(self, position: TablePosition) -> tuple[StateVersion, str]:
        match position:
            case [int(number), str(shape)]:
                if not self._is_swept:
                    # The first position after a start is that of the log: later versions never became durable.
                    self._folder.keep_only(number)
                    self._is_swept = True
                if self._current is None or self._current.number != number:
                    self._current = self._folder.load(number)
                if self._current is not None:
                    return self._current, shape
        raise lost("what was remembered of the table is gone", self._table.where)

    def _is_compare_due(self, version: StateVersion) -> bool:
        if not self._table.full_compare or not version.hash_compares:
            return False
        is_at_rest = self._clock() - version.compared_at > COMPARED_AT_REST_S
        return version.hash_compares >= self._table.full_compare or is_at_rest

    def _version_after(
        self, version: StateVersion, known: Shape, fingerprint: str | None, digests: bool
    ) -> TableVersion | None:
        frame, shape = self._read_table()
        evolved = evolution(known, shape)
        changes: list[Iterable[Change]] = [evolved.changes]
        with reading(self._table):
            if evolved.rewritten:
                now = self._difference.begin(frame, fingerprint)
                changes += [() if evolved.emptied else [Truncate([known.table.full_name])]]
                changes += [inserts_of(self._folder, now, shape)]
            elif difference := self._difference.find(version, frame, fingerprint, digests=digests):
                now = difference.version
                changes += [changes_of(self._folder, now, shape)]
            elif evolved.changes:
                now = self._difference.renumbered(version.number)
            else:
                self._current = None  # `find` has stored it again with another fingerprint
                return None
        self._current = now
        position: TablePosition = [now.number, self._shapes.keep(shape)]
        return TableVersion(position, (change for part in changes for change in part), self._clock() * 1000)


def _settled(fingerprint: str | None) -> str | None:
    return None if fingerprint == BEING_WRITTEN else fingerprint
