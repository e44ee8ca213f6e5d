"""The judge: follows what an adapter gave, transaction by transaction, and holds it against what was written.

The rule is one: after the snapshot and after every transaction, a consumer is in a state that the store was in, and
each such state is later than the one before. Whole transactions may be merged; they may not be lost, torn, doubled, or
come in another order. All of that shows as a state that never was, or that was before.
"""

from __future__ import annotations

from changesource_sdk.adapter import Delete
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.comparing import same_state
from changesource_sdk.testing.conformance.explaining import (
    Replica,
    Touched,
    described,
    explain,
    listed,
    nearest_state,
)
from changesource_sdk.testing.conformance.history import History


class Judge:
    """One consumer of one history. Invariant: the consumer is in state `reached` of the history."""

    def __init__(self, history: History, reached: int = -1) -> None:
        self.reached = reached
        self._history = history

    @property
    def is_caught_up(self) -> bool:
        """Whether the consumer has all that was written."""
        return self.reached == self._history.last or (
            self.reached >= 0 and self._history.states[self.reached] == self._history.states[-1]
        )

    def snapshot(self, replica: Replica) -> None:
        """The consumer was given a snapshot."""
        found = self._find(replica, max(self.reached, 0))
        if found is None:
            raise Broken(self._inconsistent(replica))
        self.reached = found

    def transaction(self, replica: Replica, touched: Touched, what: str) -> None:
        """The consumer applied a transaction that touched these rows; `what` tells which it was, for messages."""
        found = self._find(replica, self.reached + 1)
        if found is None:
            raise Broken(explain(self._history, self.reached, replica, touched, what))
        self.reached = found

    def _find(self, replica: Replica, first: int) -> int | None:
        states = self._history.states
        return next((n for n in range(first, len(states)) if same_state(states[n], replica)), None)

    def missing(self) -> str:
        """What has not come, once it should have."""
        count = self._history.last - self.reached
        if self.reached < 0:
            return "no snapshot came: snapshot() or the rows of its partitions did not finish"
        first = self._history.transactions[self.reached]
        deleted = " (yield a Delete for a row that is gone)" if all(isinstance(c, Delete) for c in first) else ""
        return (
            f"{count} of {self._history.last} transactions never came; the first of them: {described(first)}. Either "
            f"changes() left it out{deleted}, or gave it a position that was used before (or, being an integer, is not "
            f"above the one before), so that it passed for a repetition"
        )

    def _inconsistent(self, replica: Replica) -> str:
        nearest, found = nearest_state(self._history, replica, max(self.reached, 0))
        state = f"compared with the state after {nearest} of {self._history.last} transactions: {listed(found)}"
        return (
            f"the snapshot shows no state that the store was ever in; {state}. Every partition must show the store at "
            f"the snapshot's position, whatever is written while it is read"
        )


class Onlooker(Judge):
    """Lets everything pass: for cases that ask something else."""

    def snapshot(self, replica: Replica) -> None:
        """Nothing to say."""

    def transaction(self, replica: Replica, touched: Touched, what: str) -> None:
        """Nothing to say."""
