"""Polls that need Spark jobs, each in its own thread, so that tables without jobs do not wait for them.

A difference takes seconds, a change feed milliseconds. Polls of several tables run in parallel; Spark divides its slots
between their jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from adapters.spark_tables.source import TablePosition
from adapters.spark_tables.tail import TableStep
from changesource_sdk.toolkit import Patience


@dataclass(slots=True)
class Poll:
    """One poll of the tables of a unit, in progress or done. `positions` are those that it started at.

    Its thread writes `steps` and `error` before it sets `is_done`.
    """

    positions: Mapping[str, TablePosition]
    patience: Patience
    is_done: threading.Event = field(default_factory=threading.Event)
    steps: Sequence[TableStep] = ()
    error: BaseException | None = None

    def result(self) -> Sequence[TableStep]:
        """The steps of a poll that is done; raises its error."""
        if self.error is not None:
            raise self.error
        return self.steps


class Polls:
    """The polls in progress, at most one per unit. All methods are called in the thread of `changes`."""

    def __init__(self) -> None:
        self._polls: dict[str, Poll] = {}  # by unit; `start` adds, `done` removes
        self._patience: dict[str, Patience] = {}  # per unit, across its polls
        self._any_done = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._polls)

    def __contains__(self, unit: str) -> bool:
        return unit in self._polls

    def start(self, unit: str, positions: Mapping[str, TablePosition], find: Callable[[], Sequence[TableStep]]) -> None:
        """Start a poll of a unit that has none in progress."""
        patience = self._patience.setdefault(unit, Patience(f"table {unit}", "table", returns=True))
        poll = self._polls[unit] = Poll(positions, patience)
        threading.Thread(target=self._run, args=(poll, find), name=f"changesource-poll-{unit}", daemon=True).start()

    def _run(self, poll: Poll, find: Callable[[], Sequence[TableStep]]) -> None:
        poll.patience.begin_wait()
        try:
            poll.steps = find()
        except BaseException as error:
            poll.error = error
        finally:
            poll.patience.end_wait()
            poll.is_done.set()
            self._any_done.set()

    def done(self) -> Iterator[tuple[str, Poll]]:
        """The polls that are done since the last call; warns about those that take too long."""
        self._any_done.clear()
        for unit, poll in list(self._polls.items()):
            if poll.is_done.is_set():
                del self._polls[unit]
                yield unit, poll
            else:
                poll.patience.warn_if_overdue()

    def wait(self, seconds: float) -> None:
        """Wait until a poll is done, at most so many seconds."""
        self._any_done.wait(seconds)
