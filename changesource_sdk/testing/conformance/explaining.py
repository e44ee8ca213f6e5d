"""Why a consumer reached a state that the store was never in.

A transaction was lost, torn, repeated, out of order, or has wrong values. The rows that the last transaction touched
show which of the store's transactions it was meant to be: the one that wrote these rows, with these values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropIndex,
    DropTable,
    Insert,
    RenameTable,
    Truncate,
    Update,
)
from changesource_sdk.testing.conformance.comparing import Difference, differences, same_row, shown
from changesource_sdk.testing.conformance.history import WriteHistory
from protocol.fold.rows import Key, Rows

NEAR = 20
"""How many states ahead are compared to find the one that was meant."""

_NAMES: Mapping[type[Change], Sequence[str]] = {
    AddColumn: ("table",),
    DropColumn: ("table", "name"),
    AlterColumn: ("table", "old_name"),
    CreateTable: (),
    DropTable: ("name",),
    RenameTable: ("old", "new"),
    CreateIndex: (),
    DropIndex: ("name",),
}
"""The fields of schema changes that messages show."""

Replica = Mapping[str, Rows]
Touched = Collection[tuple[str, Key]]
"""Rows by table and key."""


def explain(history: WriteHistory, reached: int, replica: Replica, touched: Touched, what: str) -> str:
    """Why applying a transaction to state `reached` led to no later state."""
    after = reached + 1
    due = _rows_of(history, after) if after <= history.last else set()
    is_part = set(touched) < due and len(history.transactions[reached]) > 1
    if is_part and _agrees(history, after, replica, touched):
        return _torn(history, after, replica, what)
    if set(touched) != due:
        for number in (*range(after + 1, history.last + 1), *range(reached, 0, -1)):
            if set(touched) == _rows_of(history, number) and _agrees(history, number, replica, touched):
                return _out_of_turn(history, number, reached, what)
    if after > history.last:
        return (
            f"a change came twice, or was never made: {what} touches {_named(touched)}, though all that was written "
            f"had come. What the snapshot holds, or came before, must not come again under a new position"
        )
    nearest, differing = nearest_state(history, replica, after)
    return (
        f"{what} leads to a state that the store was never in; compared with the state after {nearest} transactions: "
        f"{listed(differing)}{_hint(history, differing)}"
    )


def _torn(history: WriteHistory, number: int, replica: Replica, what: str) -> str:
    differing = list(differences(history.states[number], replica))
    return (
        f"a transaction was torn: {what} has a part of {described(history.transactions[number - 1])} and lacks the "
        f"rest: {listed(differing)}. Yield all changes of a transaction in one Transaction{_hint(history, differing)}"
    )


def _out_of_turn(history: WriteHistory, number: int, reached: int, what: str) -> str:
    came = described(history.transactions[number - 1])
    if number <= reached:
        return (
            f"a change came twice: {what} is {came} again, transaction {number}, though the consumer was in state "
            f"{reached}. A transaction must keep its position when it is read again, and what the snapshot holds must "
            f"not come as a change"
        )
    missing = described(history.transactions[reached])
    return (
        f"a change was lost, or comes in another order than it was committed: {what} is {came}, transaction {number}, "
        f"while {missing}, transaction {reached + 1}, has not come"
    )


def _rows_of(history: WriteHistory, number: int) -> set[tuple[str, Key]]:
    """The rows that the transaction leading to a state touched."""
    return history.touched[number - 1]


def _agrees(history: WriteHistory, number: int, replica: Replica, touched: Touched) -> bool:
    """Whether these rows are as they were in a state."""
    for table, key in touched:
        expected, arrived = history.states[number].get(table, {}).get(key), replica.get(table, {}).get(key)
        if (expected is None) != (arrived is None):
            return False
        if expected is not None and arrived is not None and not same_row(expected, arrived):
            return False
    return True


def nearest_state(history: WriteHistory, replica: Replica, first: int) -> tuple[int, list[Difference]]:
    """The state, from `first` on, that a replica differs from least, and the differences."""
    states = history.states
    candidates = range(min(first, len(states) - 1), min(first + NEAR, len(states)))
    by_state = {number: list(differences(states[number], replica)) for number in candidates}
    # A row with a wrong value is nearer than one that is not there.
    weights = {n: sum(1 if each.kind == "different" else 2 for each in by_state[n]) for n in candidates}
    nearest = min(candidates, key=lambda number: (weights[number], -number))
    return nearest, by_state[nearest]


def _hint(history: WriteHistory, differing: Sequence[Difference]) -> str:
    extra = {(difference.table, difference.key) for difference in differing if difference.kind == "extra"}
    for change in chain.from_iterable(history.transactions):
        match change:
            case Update(table, _, old_key) if old_key and (table, history.key(table, old_key)) in extra:
                return ". The key of that row was changed: give the Update its old_key, or delete the old row"
            case Delete(table, key) if (table, history.key(table, key)) in extra:
                return ". That row was deleted: yield a Delete for it"
    return ""


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
        case Truncate(tables):
            return f"Truncate({', '.join(tables)})"
        case _:
            # A schema change: its fields are names and a column or a table.
            return f"{type(change).__name__}({', '.join(str(getattr(change, name)) for name in _NAMES[type(change)])})"


def _named(touched: Touched) -> str:
    table, key = next(iter(touched), ("", ()))
    more = f" and {len(touched) - 1} more" if len(touched) > 1 else ""
    return f"row {', '.join(map(shown, key))} of {table}{more}"


def listed(differing: Sequence[Difference]) -> str:
    """Differences for a message: the first few, and how many more there are."""
    first = "; ".join(map(str, differing[:3]))
    return f"{first}; and {len(differing) - 3} more" if len(differing) > 3 else first
