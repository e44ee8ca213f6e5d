"""The judge: follows what an adapter gave, transaction by transaction, and holds it against what was written.

The rule is one: after the snapshot and after every transaction, a consumer is in a state that the store was in, and
each such state is later than the one before. Whole transactions may be merged; they may not be lost, torn, doubled, or
come in another order. All of that shows as a state that never was, or that was before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from changesource_sdk.adapter import Change, Delete, Insert, Update
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.comparing import Difference, differences, same_state, shown
from changesource_sdk.testing.conformance.history import History
from changesource_sdk.testing.folding import Rows

NEAR = 20
"""How many states ahead are looked at to find the one that was meant."""

Replica = Mapping[str, Rows]


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

    def transaction(self, replica: Replica, what: str) -> None:
        """The consumer applied a transaction that has changes; `what` tells which, for messages."""
        found = self._find(replica, self.reached + 1)
        if found is None:
            raise Broken(self._explain(replica, what))
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
        return (
            f"{count} of {self._history.last} transactions never came; the first of them: {described(first)}. Either "
            f"changes() left it out, or gave it a position that was used before (or, being an integer, is not above "
            f"the one before), so that it passed for a repetition"
        )

    def _inconsistent(self, replica: Replica) -> str:
        nearest, found = self._nearest(replica, max(self.reached, 0))
        state = f"compared with the state after {nearest} of {self._history.last} transactions: {_list(found)}"
        return (
            f"the snapshot shows no state that the store was ever in; {state}. Every partition must show the store at "
            f"the snapshot's position, whatever is written while it is read"
        )

    def _explain(self, replica: Replica, what: str) -> str:
        states = self._history.states
        if same_state(states[self.reached], replica):
            return (
                f"a change came twice: {what} changes nothing that was not there already. A transaction must keep its "
                f"position when it is read again, and what the snapshot holds must not come as a change"
            )
        if (before := self._find_before(replica)) is not None:
            return (
                f"{what} takes the consumer back to the state after {before} transactions, from {self.reached}: "
                f"changes came in another order than they were committed, or an old one again under a new position"
            )
        nearest, found = self._nearest(replica, self.reached + 1)
        if nearest > 0 and found and all(self._is_older(nearest, difference, replica) for difference in found):
            return self._torn(nearest, found, what)
        return (
            f"{what} leads to a state that the store was never in; compared with the state after {nearest} "
            f"transactions: {_list(found)}{self._hint(found)}"
        )

    def _torn(self, nearest: int, found: Sequence[Difference], what: str) -> str:
        changes = self._history.transactions[nearest - 1]
        if len(changes) > 1 and nearest == self.reached + 1:
            return (
                f"a transaction was torn: {what} has a part of {described(changes)} and lacks the rest: "
                f"{_list(found)}. Yield all changes of a transaction in one Transaction"
            )
        return f"a change was lost before {what}: {_list(found)}{self._hint(found)}"

    def _is_older(self, nearest: int, difference: Difference, replica: Replica) -> bool:
        """Whether the row is as it was in a state before, so that only a newer change of it is missing."""
        found = replica.get(difference.table, {}).get(difference.key)
        olds = [self._history.states[n].get(difference.table, {}).get(difference.key) for n in range(nearest)]
        if found is None:
            return None in olds
        return any(old is not None and same_state({"": {(): old}}, {"": {(): dict(found)}}) for old in olds)

    def _hint(self, found: Sequence[Difference]) -> str:
        extra = {(difference.table, difference.key) for difference in found if difference.kind == "extra"}
        for change in chain.from_iterable(self._history.transactions):
            match change:
                case Update(table, _, old_key) if old_key and (table, self._history.key(table, old_key)) in extra:
                    return ". The key of that row was changed: give the Update its old_key, or delete the old row"
                case Delete(table, key) if (table, self._history.key(table, key)) in extra:
                    return ". That row was deleted: yield a Delete for it"
        return ""

    def _find_before(self, replica: Replica) -> int | None:
        return next((n for n in range(self.reached) if same_state(self._history.states[n], replica)), None)

    def _nearest(self, replica: Replica, first: int) -> tuple[int, list[Difference]]:
        states = self._history.states
        candidates = range(min(first, len(states) - 1), min(first + NEAR, len(states)))
        found = {n: list(differences(states[n], replica)) for n in candidates}
        nearest = min(found, key=lambda n: len(found[n]))
        return nearest, found[nearest]


class Onlooker(Judge):
    """Lets everything pass: for cases that ask something else."""

    def snapshot(self, replica: Replica) -> None:
        """Nothing to say."""

    def transaction(self, replica: Replica, what: str) -> None:
        """Nothing to say."""


def described(changes: Sequence[Change]) -> str:
    """A transaction for a message: its first change, and how many more there are."""
    if not changes:
        return "an empty transaction"
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return f"{_described_change(changes[0])}{more}"


def _described_change(change: Change) -> str:
    match change:
        case Insert(table, row):
            return f"Insert({table}, {shown(next(iter(row.values()), None))})"
        case Update(table, row, old_key):
            moved = f", old_key={shown(dict(old_key))}" if old_key else ""
            return f"Update({table}, {shown(next(iter(row.values()), None))}{moved})"
        case Delete(table, key):
            return f"Delete({table}, {shown(dict(key))})"
        case _:
            return type(change).__name__


def _list(found: Sequence[Difference]) -> str:
    first = "; ".join(map(str, found[:3]))
    return f"{first}; and {len(found) - 3} more" if len(found) > 3 else first
