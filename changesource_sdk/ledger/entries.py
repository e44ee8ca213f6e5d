"""Entries of the ledger as row changes, and when they may be sent. Pure.

An entry may be sent once the upstream has been read up to every position its mutator reported: then the data it
confirms is in the stream already, or is sent in the same transaction. Entries are sent in order, so one that waits
holds back those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from changesource_sdk.adapter import Delete, Insert, Position, Row, Table, Update
from changesource_sdk.schema import JsonText

HasReached: TypeAlias = Callable[[Position, Position], bool]
RowChange: TypeAlias = Insert | Update | Delete


@runtime_checkable
class Comparing(Protocol):
    """An adapter that can order its positions itself."""

    def has_reached(self, wanted: Position, at: Position) -> bool:
        """Whether everything up to `wanted` has been handed out once the transaction at `at` was."""


def has_reached(wanted: Position, at: Position) -> bool:
    """The rule where an adapter has none of its own: numbers by size, the parts of a dict one by one, else equality.

    `wanted` may have some of the parts only, such as the offset of the one partition that was written to; items of a
    list are named by their index.
    """
    if isinstance(wanted, dict) and isinstance(at, dict | list):
        parts = at if isinstance(at, dict) else {str(index): part for index, part in enumerate(at)}
        return all(name in parts and has_reached(part, parts[name]) for name, part in wanted.items())
    if _is_number(wanted) and _is_number(at):
        return bool(at >= wanted)  # type: ignore[operator]
    return wanted == at


def _is_number(value: Position) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One entry. The upstream must have been read up to all `positions` before it is sent."""

    sequence: int
    kind: Literal["confirm", "forget"]
    client_group: str
    client: str
    mutation: int
    result: str | None
    positions: Sequence[Position]

    def may_be_sent(self, at: Position, reached: HasReached) -> bool:
        """Whether everything that the entry confirms is in the stream up to `at`."""
        return all(reached(wanted, at) for wanted in self.positions)

    def changes(self, schema: str) -> Iterator[RowChange]:
        """What it does to the consumer's tables of a schema."""
        client = {"clientGroupID": self.client_group, "clientID": self.client}
        mutation = {**client, "mutationID": self.mutation}
        if self.kind == "forget":
            yield Delete(f"{schema}.mutations", mutation)
            return
        row = client_row(self.client_group, self.client, self.mutation)
        yield (Insert if self.mutation == 1 else Update)(f"{schema}.clients", row)
        if self.result is not None:
            yield Insert(f"{schema}.mutations", result_row(self.client_group, self.client, self.mutation, self.result))


def client_row(client_group: str, client: str, last_mutation: int) -> dict[str, object]:
    """A row of the consumer's `clients`."""
    return {"clientGroupID": client_group, "clientID": client, "lastMutationID": last_mutation, "userID": None}


def result_row(client_group: str, client: str, mutation: int, result: str) -> dict[str, object]:
    """A row of the consumer's `mutations`."""
    key = {"clientGroupID": client_group, "clientID": client, "mutationID": mutation}
    return {**key, "mutation": None, "result": JsonText(result)}


def released(entries: Iterable[LedgerEntry], at: Position, reached: HasReached) -> list[LedgerEntry]:
    """The entries that may be sent now: all before the first that must wait."""
    return list(takewhile(lambda entry: entry.may_be_sent(at, reached), entries))


def folded(
    tables: Sequence[Table], rows: Sequence[Iterable[Row]], changes: Iterable[RowChange]
) -> dict[str, dict[tuple[object, ...], Row]]:
    """Rows by table and key after the changes; `rows` has the rows before them, one list per table."""
    keys = {table.full_name: table.key for table in tables}
    current = {
        table.full_name: {_key(table.key, row): row for row in before}
        for table, before in zip(tables, rows, strict=True)
    }
    for change in changes:
        if isinstance(change, Delete):
            current[change.table].pop(_key(keys[change.table], change.key), None)
        else:
            current[change.table][_key(keys[change.table], change.row)] = change.row
    return current


def _key(columns: Sequence[str], row: Row) -> tuple[object, ...]:
    return tuple(row[column] for column in columns)
