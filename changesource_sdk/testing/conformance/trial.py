"""One trial: a new store, the history of what is written to it, and ways to watch its adapter.

Cases write through a trial, never through the harness, so that the history is complete. Each row has a number; the
trial remembers which version of it the store has.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from changesource_sdk.adapter import Adapter, Change, Closing, Delete, Insert, Row, Table, Truncate, Update
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.pipeline.settings import PipelineSettings
from changesource_sdk.pipeline.snapshot.take import close_quietly
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.testing.conformance.case import Broken, NotApplicable
from changesource_sdk.testing.conformance.explaining import described
from changesource_sdk.testing.conformance.harness import Harness, lacking
from changesource_sdk.testing.conformance.history import WriteHistory
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.testing.conformance.pipeline_run import MakeAdapter, Watch, running
from changesource_sdk.testing.conformance.reading import ReadSnapshot, read_snapshot, within
from changesource_sdk.testing.faults.plan import Faults


class Trial:
    """The state of one case. Invariant: `history` ends with the state of the store, or the one it is about to be in."""

    def __init__(self, harness: Harness, folder: Path, seed: int) -> None:
        self.harness = harness
        self.folder = folder
        self.seed = seed
        self.random = random.Random(seed)
        self.patience = harness.patience
        self.faults = Faults(seed)
        self._lacking = lacking(harness)
        # The version of each row in the store, by its number. Written by `insert`, `update` and `delete`.
        self._versions: dict[int, int] = {}
        # Every adapter that was created, to be closed.
        self._made: list[Adapter] = []
        # Held from choosing a random transaction until it is committed.
        self._writing = threading.Lock()

    def has(self, capability: str) -> bool:
        """Whether the store has a capability."""
        return capability not in self._lacking

    def adapter(self) -> Adapter:
        """A new adapter."""
        made: Adapter = within(
            self.patience, "creating the adapter", lambda: self.harness.adapter(**self.harness.settings())
        )
        self._made.append(made)
        return made

    def close(self) -> None:
        """Close every adapter that was made; some may be closed already."""
        for adapter in self._made:
            if isinstance(adapter, Closing):
                close_quietly("closing the adapter", adapter.close)

    @cached_property
    def tables(self) -> Sequence[Table]:
        """What the adapter declares."""
        tables = tuple(within(self.patience, "tables()", lambda: self.adapter().tables()))
        if not tables:
            raise Broken("tables() gives no tables: declare at least one, with its columns and key")
        return tables

    @cached_property
    def table(self) -> Table:
        """The table that is written to: the one that the harness names, or the first whose rows have a key."""
        wanted = self.harness.table
        for table in self.tables:
            if table.full_name == wanted or (table.key and not wanted):
                return table
        if wanted:
            known = ", ".join(table.full_name for table in self.tables)
            raise Broken(f"tables() gives no table {wanted!r}, which the harness names; it gives {known}")
        raise NotApplicable("no table has a key, so rows cannot be distinguished")

    @cached_property
    def history(self) -> WriteHistory:
        """What was written. Nothing is expected of the rows of a store that is only read."""
        return WriteHistory(self.tables, [self.table.full_name] if self.has("writes") else [])

    @property
    def name(self) -> str:
        """The name of the table that is written to."""
        return self.table.full_name

    def commit(self, *changes: Change) -> None:
        """Commit one transaction; raises `HarnessFailed` if the harness cannot write it."""
        with self.history.lock:
            self.history.record(changes)
            try:
                self.harness.commit(changes)
            except Exception as error:
                raise HarnessFailed(self.harness, changes, error) from error

    def row(self, number: int, version: int) -> Row:
        """A row to write, with the table's columns as they are now."""
        return self.harness.row(self.history.table(self.name), number, version)

    def insert(self, number: int) -> Insert:
        """A new row."""
        self._versions[number] = 0
        return Insert(self.name, self.row(number, 0))

    def update(self, number: int) -> Update:
        """The next version of a row, whole."""
        self._versions[number] += 1
        return Update(self.name, self.row(number, self._versions[number]))

    def delete(self, number: int) -> Delete:
        """The deletion of a row."""
        del self._versions[number]
        row = self.row(number, 0)
        return Delete(self.name, {column: row[column] for column in self.table.key})

    def insert_with(self, number: int, **values: object) -> Insert:
        """A new row with these values in some of its columns."""
        inserted = self.insert(number)
        return Insert(inserted.table, {**inserted.row, **values})

    def truncate(self) -> Truncate:
        """The deletion of all rows."""
        self._versions.clear()
        return Truncate([self.name])

    def insert_many(self, count: int, first: int = 1) -> None:
        """Insert rows, in one transaction if the store has transactions."""
        rows = [self.insert(number) for number in range(first, first + count)]
        for group in [rows] if self.has("transactions") else [[row] for row in rows]:
            self.commit(*group)

    def some_change(self) -> Change:
        """A random change that the store supports."""
        numbers = sorted(self._versions)
        kinds = ["insert"]
        kinds += ["update"] * 2 if numbers and self.has("updates") else []
        kinds += ["delete"] if len(numbers) > 3 and self.has("deletes") else []
        match self.random.choice(kinds):
            case "update":
                return self.update(self.random.choice(numbers))
            case "delete":
                return self.delete(self.random.choice(numbers))
            case _:
                return self.insert(max(numbers, default=0) + 1 + self.random.randrange(3))

    def some_transaction(self) -> None:
        """A random transaction."""
        # Chosen and committed in one go: what a change does depends on the one before.
        with self._writing:
            size = self.random.choice((1, 1, 2, 5)) if self.has("transactions") else 1
            self.commit(*[self.some_change() for _ in range(size)])

    @contextmanager
    def watch(self, state: str = "state", judge: Judge | None = None) -> Iterator[Watch]:
        """A state directory, observed."""
        watch = Watch(self.folder / state, judge or Judge(self.history), self.patience)
        try:
            yield watch
        finally:
            watch.close()

    @contextmanager
    def running(
        self, make: MakeAdapter | None = None, *, state: str = "state", judge: Judge | None = None
    ) -> Iterator[Watch]:
        """The pipeline, running in this process."""
        with self.watch(state, judge) as watch, self.running_into(watch, make):
            yield watch

    @contextmanager
    def running_into(self, watch: Watch, make: MakeAdapter | None = None) -> Iterator[None]:
        """The pipeline, running in this process, once more over a state directory."""
        with running(make or self.adapter, watch):
            yield

    def pipeline(self) -> PipelineSettings:
        """The settings of a pipeline process for this store."""
        adapter = self.harness.adapter
        return PipelineSettings(
            SourceSpec(f"{adapter.__module__}:{adapter.__qualname__}", dict(self.harness.settings()))
        )

    def read_snapshot(self) -> ReadSnapshot:
        """A snapshot, read here."""
        return read_snapshot(self.adapter(), self.patience)


class HarnessFailed(Broken):
    """The harness could not write; the adapter was not called."""

    def __init__(self, harness: Harness, changes: Sequence[Change], error: Exception) -> None:
        message = str(error) if isinstance(error, ChangesourceError) else f"{type(error).__name__}: {error}"
        super().__init__(
            f"{type(harness).__name__}.commit() failed on {described(changes)}: {message}. If the store refuses these "
            f"values, override row() and samples() of the harness; else make commit() write this, or declare in "
            f"`lacks` what the store cannot do"
        )
