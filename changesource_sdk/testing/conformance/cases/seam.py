"""The seam between a snapshot and the changes after it: nothing is lost or repeated there, also under writes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from changesource_sdk.adapter import (
    Acknowledging,
    Adapter,
    Closing,
    Partition,
    Position,
    Row,
    Snapshot,
    Table,
    Transaction,
    UsingTables,
)
from changesource_sdk.pipeline.tail import POLL_INTERVAL_S
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.trial import Trial

LOCKED_S = 2.0
"""How long a write may be held up by a reader before reading continues."""
ROUNDS = 5
ROWS_UNDER_LOAD = 200


def at_every_step(trial: Trial) -> None:
    """Writes before, in the middle of and after each step of a snapshot are seen once."""
    trial.insert_many(12)
    wrapped: list[SeamAdapter] = []

    def make() -> Adapter:
        wrapped.append(SeamAdapter(trial.adapter(), trial))
        return wrapped[-1]

    with trial.running(make) as watch:
        watch.until(lambda: bool(wrapped) and wrapped[-1].is_tailing.is_set(), lambda: "changes() was never called")
        wrapped[-1].finish_writing()
        watch.caught_up()


def under_load(trial: Trial) -> None:
    """Snapshots taken while another thread writes without pause."""
    trial.insert_many(ROWS_UNDER_LOAD)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that the threads meet at as many points as possible
    try:
        for number in range(ROUNDS):
            _one_round(trial, f"state-{number}")
    finally:
        sys.setswitchinterval(interval)


def _one_round(trial: Trial, state: str) -> None:
    enough = threading.Event()
    failed: list[Exception] = []

    def write() -> None:
        try:
            for _ in range(200):
                if enough.is_set():
                    return
                trial.some_transaction()
        except Exception as error:
            failed.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        with trial.running(state=state) as watch:
            watch.until(lambda: watch.witness.generation > 0, lambda: "no snapshot came while the store was written to")
            enough.set()
            writer.join(trial.patience)
            if failed:
                raise failed[0]
            watch.caught_up()
    finally:
        enough.set()


class SeamAdapter:
    """An adapter that writes to the store between its steps. A write that a reader blocks is left running."""

    def __init__(self, inner: Adapter, trial: Trial) -> None:
        self._inner = inner
        self._trial = trial
        # Every write so far; `write` appends, on the pipeline's threads.
        self._writes: list[threading.Thread] = []
        # The errors of writes that failed; appended by the thread of each write, raised when they are joined.
        self._failed: list[Exception] = []
        # Set with the first transaction of `changes`.
        self.is_tailing = threading.Event()
        self.poll_interval = getattr(inner, "poll_interval", POLL_INTERVAL_S)

    def write(self) -> None:
        """Commit one transaction in a thread of its own."""
        thread = threading.Thread(target=self._write, daemon=True)
        self._writes.append(thread)
        thread.start()
        thread.join(LOCKED_S)

    def _write(self) -> None:
        try:
            self._trial.some_transaction()
        except Exception as error:
            self._failed.append(error)

    def finish_writing(self) -> None:
        """Wait for the writes that were held up."""
        for thread in self._writes:
            thread.join(self._trial.patience)
            if thread.is_alive():
                raise Broken(
                    "a write to the store never finishes: the adapter keeps a lock after its snapshot was read"
                )
        if self._failed:
            raise self._failed[0]

    def tables(self) -> Sequence[Table]:
        """Those of the inner adapter."""
        return self._inner.tables()

    def snapshot(self) -> Snapshot:
        """The snapshot, with writes before, after and while it is read."""
        self.write()
        snapshot = self._inner.snapshot()
        self.write()
        partitions = [_SeamPartition(partition, self) for partition in snapshot.partitions]
        return replace(snapshot, partitions=partitions, can_resume=None)

    def use_tables(self, tables: Sequence[Table]) -> None:
        """Passed on, if the inner adapter has it."""
        if isinstance(self._inner, UsingTables):
            self._inner.use_tables(tables)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The transactions, with writes before and after the first."""
        if not self.is_tailing.is_set():
            self.write()
        for transaction in self._inner.changes(after):
            if not self.is_tailing.is_set():
                self.write()
            self.is_tailing.set()
            yield transaction

    def acknowledge(self, position: Position) -> None:
        """Passed on, if the inner adapter has it."""
        if isinstance(self._inner, Acknowledging):
            self._inner.acknowledge(position)

    def close(self) -> None:
        """Passed on, if the inner adapter has it."""
        if isinstance(self._inner, Closing):
            self._inner.close()


@dataclass(frozen=True, slots=True)
class _SeamPartition:
    """A partition that writes to the store while it is read."""

    inner: Partition
    seam: SeamAdapter

    @property
    def table(self) -> str:
        return self.inner.table

    def rows(self) -> Iterable[Row]:
        self.seam.write()
        for number, row in enumerate(self.inner.rows()):
            if number in (0, 5):
                self.seam.write()
            yield row
        self.seam.write()
