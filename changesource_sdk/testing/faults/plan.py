"""Planned faults, and the receipts that they fired.

A `Faults` is a seeded plan. At every opportunity a fault decides whether it fires, and leaves a receipt if it does.
Call `settle` at the end: a fault that never fired proves nothing, so it fails the run.

    faults = Faults(seed=7)
    make = faults.adapter(MyAdapter, drop=2, duplicate=3)
    ...                                # run the pipeline with `make`
    faults.settle()
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import Adapter
from changesource_sdk.testing.faults.adapter_faults import FaultyAdapter
from changesource_sdk.testing.faults.link import Link
from changesource_sdk.testing.faults.state_faults import full_disk, truncated_log


class FaultNeverFired(AssertionError):
    """A planned fault had no opportunity: the run shows nothing about it."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A fault that fired: its name, at which opportunity, and what it hit."""

    fault: str
    opportunity: int
    where: str


class Fault:
    """One kind of fault, planned `times` times among its first `within` opportunities. Threads may share it."""

    def __init__(self, name: str, times: int, within: int, chance: random.Random, receipts: list[Receipt]) -> None:
        self.name = name
        self.times = times
        self._due = set(chance.sample(range(within), times))
        self._receipts = receipts
        # Opportunities so far; written by `fires`, under `_lock`.
        self._seen = 0
        self._lock = threading.Lock()

    def fires(self, where: str) -> bool:
        """Whether the fault happens at this opportunity; the receipt is written if so."""
        with self._lock:
            number = self._seen
            self._seen += 1
            if number not in self._due:
                return False
            self._receipts.append(Receipt(self.name, number, where))
            return True

    @property
    def fired(self) -> int:
        """How often it happened."""
        return sum(receipt.fault == self.name for receipt in self._receipts)


class Faults:
    """A plan of faults and their receipts. Invariant: the same seed plans the same faults."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.receipts: list[Receipt] = []
        self._random = random.Random(seed)
        # Every fault so far; `plan` appends, `settle` checks that each has fired.
        self._planned: list[Fault] = []

    def plan(self, name: str, times: int = 1, within: int = 8) -> Fault:
        """A fault to ask at each opportunity; it fires `times` times among the first `within`."""
        fault = Fault(name, times, max(within, times), self._random, self.receipts)
        self._planned.append(fault)
        return fault

    def adapter(
        self,
        make: Callable[[], Adapter],
        *,
        drop: int = 0,
        delay: int = 0,
        duplicate: int = 0,
        reorder: int = 0,
        within: int = 8,
    ) -> Callable[[], Adapter]:
        """A maker of adapters that fail this many times (see `adapter_faults`)."""
        counts = {"drop": drop, "delay": delay, "duplicate": duplicate, "reorder": reorder}
        planned = {name: self.plan(name, times, within) for name, times in counts.items() if times}
        return lambda: FaultyAdapter(make(), planned)

    def link(self, host: str, port: int, *, drop: int = 0, delay: int = 0, within: int = 8) -> Link:
        """A port that leads to a store's server, where connections drop and delay this many times (see `link`)."""
        dropped = self.plan("drop", drop, within) if drop else None
        return Link(host, port, dropped, self.plan("delay", delay, within) if delay else None)

    def kill(self, pid: int) -> None:
        """SIGKILL a process."""
        fault = self.plan("kill", within=1)
        os.kill(pid, signal.SIGKILL)
        fault.fires(f"process {pid}")

    def truncate_log(self, state: Path) -> None:
        """Cut a change log in two while no pipeline runs."""
        fault = self.plan("truncate log", within=1)
        size = truncated_log(state)
        fault.fires(f"{state.name}: {size} bytes left")

    def fill_disk(self, pid: int) -> Callable[[], None]:
        """Fill the disk of a pipeline process; the result makes room again. See `state_faults.full_disk`."""
        fault = self.plan("full disk", within=1)
        make_room = full_disk(pid)
        fault.fires(f"process {pid}")
        return make_room

    def settle(self) -> None:
        """Fail if a planned fault never fired."""
        missing = [fault.name for fault in self._planned if not fault.fired]
        if missing:
            raise FaultNeverFired(
                f"planned but never fired: {', '.join(missing)} (seed {self.seed}); give the run more to do, or plan "
                f"the fault within fewer opportunities"
            )
