"""The judge: compares a consumer, transaction by transaction, with what was written to the store.

There is one rule: after the snapshot and after every transaction, a consumer is in a state that the store was in, and
each such state is later than the one before. Whole transactions may be merged; they may not be lost, torn, repeated or
reordered. All of that shows as a state that never existed, or as an earlier one.
"""

from __future__ import annotations

from changesource_sdk.adapter import Delete
from changesource_sdk.contract import SCHEMA_CHANGES
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.comparing import Difference, differences, same_state
from changesource_sdk.testing.conformance.explaining import (
    Replica,
    Touched,
    described,
    explain,
    listed,
    nearest_state,
)
from changesource_sdk.testing.conformance.history import State, WriteHistory


class Judge:
    """One consumer of one history. Raises `Broken` at the first state that breaks the rule.

    The rule applies to the tables of the snapshot, also when they are renamed. A table that is created meanwhile may
    arrive later, or with later rows, than the transaction that created it; in the end it must have the rows of the
    store, and tables that were dropped must be gone.
    """

    def __init__(self, history: WriteHistory, reached: int = -1) -> None:
        # The number of the state that the consumer is in; -1 before its snapshot. Written by `snapshot`, `transaction`.
        self.reached = reached
        self._history = history
        # Identities of the tables that the rule applies to; written by `snapshot`.
        self._lasting_ids = set(history.identities[max(reached, 0)].values())
        # The consumer's rows, which it changes in place.
        self._replica: Replica = {}

    @property
    def is_caught_up(self) -> bool:
        """Whether the consumer has all that was written."""
        return self._has_reached_last() and not self._unsettled()

    def _has_reached_last(self) -> bool:
        last = self._history.last
        return self.reached == last or (self.reached >= 0 and self._lasting(self.reached) == self._lasting(last))

    def _unsettled(self) -> list[Difference]:
        """How the tables that were created or dropped differ from the store."""
        history = self._history
        lasting = self._lasting(history.last)
        created = {name: rows for name, rows in history.states[-1].items() if name not in lasting}
        missing = [Difference("missing", name, ()) for name in created if name not in self._replica]
        dropped = set().union(*history.identities) - history.identities[-1].keys()
        extra = [Difference("extra", name, ()) for name in sorted(dropped) if name in self._replica]
        return missing or extra or list(differences(created, self._replica))

    def _is_lasting(self, table: str) -> bool:
        """Whether a table of the snapshot has this name now or later."""
        return any(names.get(table) in self._lasting_ids for names in self._history.identities[max(self.reached, 0) :])

    def _lasting(self, number: int) -> State:
        """A state without the tables that were created since the snapshot."""
        names = self._history.identities[number]
        state = self._history.states[number]
        return {name: rows for name, rows in state.items() if names.get(name) in self._lasting_ids}

    def snapshot(self, replica: Replica) -> None:
        """The consumer has applied a snapshot."""
        self._replica = replica
        states = self._history.states
        numbers = range(max(self.reached, 0), self._history.last + 1)
        state = next((number for number in numbers if same_state(states[number], replica)), None)
        if state is None:
            raise Broken(self._inconsistent(replica))
        self.reached = state
        self._lasting_ids = set(self._history.identities[state].values())

    def transaction(self, replica: Replica, touched: Touched, what: str) -> None:
        """The consumer applied a transaction that touched these rows; `what` names the transaction in messages."""
        self._replica = replica
        numbers = range(self.reached + 1, self._history.last + 1)
        state = next((number for number in numbers if same_state(self._lasting(number), replica)), None)
        if state is not None:
            self.reached = state
        elif any(self._is_lasting(table) for table, _ in touched):
            raise Broken(explain(self._history, self.reached, replica, touched, what))

    def missing(self) -> str:
        """What is missing, once the time to wait for it is over."""
        if self.reached < 0:
            return "no snapshot came: snapshot() or the rows of its partitions did not finish"
        if self._has_reached_last():
            differing = listed(self._unsettled())
            return (
                f"a table that was created or dropped did not come as it is: {differing}. Yield CreateTable, then its "
                f"rows; DropTable for one that is gone; RenameTable for one with another name"
            )
        first = self._history.transactions[self.reached]
        hint = " (yield a Delete for a row that is gone)" if all(isinstance(c, Delete) for c in first) else ""
        if isinstance(first[0] if first else None, SCHEMA_CHANGES):
            hint = f" (yield {type(first[0]).__name__} before the rows that need it)"
        return (
            f"{self._history.last - self.reached} of {self._history.last} transactions never came; the first of them: "
            f"{described(first)}. Either changes() left it out{hint}, or gave it a position that was used before "
            f"(or, being an integer, is not above the one before), so that it passed for a repetition"
        )

    def _inconsistent(self, replica: Replica) -> str:
        nearest, differing = nearest_state(self._history, replica, max(self.reached, 0))
        state = f"compared with the state after {nearest} of {self._history.last} transactions: {listed(differing)}"
        return (
            f"the snapshot shows no state that the store was ever in; {state}. Every partition must show the store at "
            f"the snapshot's position, whatever is written while it is read"
        )


class LenientJudge(Judge):
    """A judge that never fails: for cases about something else."""

    def snapshot(self, replica: Replica) -> None:
        """Accepted."""

    def transaction(self, replica: Replica, touched: Touched, what: str) -> None:
        """Accepted."""
