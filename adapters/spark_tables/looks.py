"""Looks that take jobs of Spark, each in a thread of its own, so that tables which need none do not wait for them.

A difference takes seconds where a change feed takes milliseconds. Looks at several tables run side by side; Spark
shares its slots between their jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from adapters.spark_tables.source import Token
from adapters.spark_tables.versions import Step
from changesource_sdk.toolkit import Patience


@dataclass(slots=True)
class Look:
    """One look at the tables of a unit after their tokens, in progress or done. `steps` and `error` are written by its
    thread before `is_done` is set.
    """

    tokens: Mapping[str, Token]
    patience: Patience
    is_done: threading.Event = field(default_factory=threading.Event)
    steps: Sequence[Step] = ()
    error: BaseException | None = None

    def result(self) -> Sequence[Step]:
        """What a look that is done has brought; raises what it met."""
        if self.error is not None:
            raise self.error
        return self.steps


class Looks:
    """The looks in progress, at most one per unit. All but the looking itself happens in the caller's thread."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}
        self._patience: dict[str, Patience] = {}  # per unit, across its looks
        self._any_done = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._looks)

    def __contains__(self, unit: str) -> bool:
        return unit in self._looks

    def start(self, unit: str, tokens: Mapping[str, Token], find: Callable[[], Sequence[Step]]) -> None:
        """Look at a unit that is not being looked at."""
        patience = self._patience.setdefault(unit, Patience(f"table {unit}", "table", returns=True))
        look = self._looks[unit] = Look(tokens, patience)
        threading.Thread(target=self._run, args=(look, find), name=f"changesource-look-{unit}", daemon=True).start()

    def _run(self, look: Look, find: Callable[[], Sequence[Step]]) -> None:
        look.patience.asked()
        try:
            look.steps = find()
        except BaseException as error:
            look.error = error
        finally:
            look.patience.answered()
            look.is_done.set()
            self._any_done.set()

    def done(self) -> Iterator[tuple[str, Look]]:
        """The looks that are done since the last time; those that take too long are warned of."""
        self._any_done.clear()
        for unit, look in list(self._looks.items()):
            if look.is_done.is_set():
                del self._looks[unit]
                yield unit, look
            else:
                look.patience.look()

    def wait(self, seconds: float) -> None:
        """Until one is done, or so long."""
        self._any_done.wait(seconds)
