"""A table without a change feed: each look compares it with what is remembered of it.

A token is the number of a version of the state and the name of the shape it has. A look that finds nothing new by the
fingerprint costs no job of Spark. Now and then, digests are compared as well as hashes: after so many differences as
`full_compare` says, and when the table has been at rest for a while after one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from adapters.spark_tables.checks import table_checks
from adapters.spark_tables.difference.changed_rows import changes_of, holds_copy, inserts_of, remove_copy, shares_of
from adapters.spark_tables.difference.compute import Difference, tuned
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from adapters.spark_tables.readers.contract import TableReader, reading
from adapters.spark_tables.readers.files_and_jdbc import BEING_WRITTEN
from adapters.spark_tables.rows.keys import UnusableKeys
from adapters.spark_tables.rows.shape import Shape, evolution
from adapters.spark_tables.rows.shapes import Shapes
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TableSnapshot, TableVersion, Token
from adapters.spark_tables.types import travelling
from adapters.spark_tables.versions import lost
from changesource_sdk import Change, Check, Table, Truncate
from changesource_sdk.toolkit import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMPARED_AT_REST_S = 3600.0


class DifferenceSource:
    """A `TableSource` over a reader. Invariant: a token names a version that is whole and a shape that is kept."""

    takes_jobs = True

    def __init__(
        self, table: TableSettings, folder: str, reader: TableReader, clock: Callable[[], float] = time.time
    ) -> None:
        self._table = table
        self._folder = StateFolder(folder, clock)
        self._shapes = Shapes(folder)
        self._reader = reader
        self._clock = clock
        self._current: StateVersion | None = None
        self._is_swept = False
        self._refused: tuple[str, UnusableKeys] | None = None  # the table as it looked when its keys were bad

    @cached_property
    def _difference(self) -> Difference:
        return Difference(tuned(spark_session()), self._folder, self._table.name, self._table.key, self._clock)

    def table(self) -> Table:
        """The table as it is now."""
        return self._look()[1].table

    def snapshot(self) -> TableSnapshot:
        """All rows, from a copy that lives until the snapshot is closed, and is gone on with until then."""
        fingerprint = self._reader.fingerprint(self._difference.session)
        with self._refusing(fingerprint):
            frame, shape = self._look()
            with reading(self._table):
                version = self._difference.begin(frame, _settled(fingerprint))
        token: Token = [version.number, self._shapes.keep(shape)]
        shares = shares_of(self._folder, version, shape)
        root, number = self._folder.root, version.number
        return TableSnapshot(
            token, shape.table, shares, partial(holds_copy, root, number), close=partial(remove_copy, root, number)
        )

    def poll(self, after: Token) -> Iterator[TableVersion]:
        """One version, if the table is not as it was."""
        version, shape_name = self._remembered(after)
        fingerprint = self._reader.fingerprint(self._difference.session)
        digests = self._is_compare_due(version)
        if fingerprint == BEING_WRITTEN:
            return
        if fingerprint is not None and fingerprint == version.fingerprint and not digests:
            self._current = self._difference.compact_if_crowded(version)
            return
        with self._refusing(fingerprint):
            found = self._version_after(version, self._shapes.get(shape_name), fingerprint, digests)
        if found is not None:
            yield found

    @contextmanager
    def _refusing(self, fingerprint: str | None) -> Iterator[None]:
        """A table whose keys were bad is not read again as long as it looks the same."""
        if self._refused is not None and fingerprint == self._refused[0]:
            raise self._refused[1].with_traceback(None)
        try:
            yield
        except UnusableKeys as error:
            self._refused = None if fingerprint is None else (fingerprint, error)
            raise
        self._refused = None

    def acknowledge(self, token: Token) -> None:
        """Versions before this one may go."""
        match token:
            case [int(number), str()]:
                self._folder.forget_before(number)

    def examine(self) -> Iterable[Check]:
        """What stands in the way of syncing the table."""
        return table_checks(self._table, lambda: self._look()[1], lambda: self._look()[0])

    def _look(self) -> tuple[DataFrame, Shape]:
        """The columns that travel, and the shape of all."""
        frame = self._reader.frame(self._difference.session)
        with reading(self._table):
            shape = Shape(self._table.name, frame.schema, self._table.key)
            return travelling(frame), shape

    def _remembered(self, token: Token) -> tuple[StateVersion, str]:
        match token:
            case [int(number), str(shape)]:
                if not self._is_swept:
                    # The log's own position: what is beyond it never became durable.
                    self._folder.keep_only(number)
                    self._is_swept = True
                if self._current is None or self._current.number != number:
                    self._current = self._folder.load(number)
                if self._current is not None:
                    return self._current, shape
        raise lost("what was remembered of the table is gone", self._table.where)

    def _is_compare_due(self, version: StateVersion) -> bool:
        if not self._table.full_compare or not version.looks:
            return False
        is_at_rest = self._clock() - version.compared_at > COMPARED_AT_REST_S
        return version.looks >= self._table.full_compare or is_at_rest

    def _version_after(
        self, version: StateVersion, known: Shape, fingerprint: str | None, digests: bool
    ) -> TableVersion | None:
        frame, shape = self._look()
        evolved = evolution(known, shape)
        changes: list[Iterable[Change]] = [evolved.changes]
        with reading(self._table):
            if evolved.rewritten:
                now = self._difference.begin(frame, fingerprint)
                changes += [() if evolved.emptied else [Truncate([known.table.full_name])]]
                changes += [inserts_of(self._folder, now, shape)]
            elif found := self._difference.find(version, frame, fingerprint, digests=digests):
                now = found.version
                changes += [changes_of(self._folder, now, shape)]
            elif evolved.changes:
                now = self._difference.renumbered(version.number)
            else:
                self._current = None  # it was written again, with what was seen
                return None
        self._current = now
        token: Token = [now.number, self._shapes.keep(shape)]
        return TableVersion(token, (change for part in changes for change in part), self._clock() * 1000)


def _settled(fingerprint: str | None) -> str | None:
    return None if fingerprint == BEING_WRITTEN else fingerprint
