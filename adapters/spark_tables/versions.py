"""Versions of several tables as one stream of transactions: their order, their groups, the position between them.

A position holds a token per table. Versions interleave in the order of their commit times; those of one table always
stay in their own order, whatever its clock says. Tables of a group move together: all that a look finds in them is one
transaction. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TableVersion, Token
from changesource_sdk import Position, ResyncRequired, Transaction, position_lost


def lost(reason: str, where: str = "") -> ResyncRequired:
    """The position cannot be continued from: the tables must be read anew."""
    return position_lost(reason, where, "nothing to do: the tables are read anew, and consumers are reset")


@dataclass(frozen=True, slots=True)
class Place:
    """A token per table, in the order of the settings."""

    tokens: Mapping[str, Token]

    @classmethod
    def at(cls, position: Position, tables: Sequence[TableSettings]) -> Place:
        """The place that a stored position means to these tables."""
        found = position.get("tables") if isinstance(position, dict) else None
        if not isinstance(found, dict):
            raise lost("the position was not made by this adapter")
        tokens: dict[str, Token] = {}
        for table in tables:
            match found.get(table.name):
                case [str(identity), token] if identity == table.identity:
                    tokens[table.name] = token
                case None:
                    raise lost("the table is new in the settings", table.where)
                case _:
                    raise lost("its source or its key is another one in the settings", table.where)
        if len(found) > len(tables):
            raise lost(f"{', '.join(sorted(found.keys() - tokens.keys()))} is no longer in the settings")
        return cls(tokens)

    def position(self, tables: Sequence[TableSettings]) -> Position:
        """The place as the log stores it."""
        return {"tables": {table.name: [table.identity, self.tokens[table.name]] for table in tables}}

    def moved(self, steps: Iterable[Step]) -> Place:
        """The place after these steps."""
        return Place({**self.tokens, **{step.table: step.version.token for step in steps}})


@dataclass(frozen=True, slots=True)
class Step:
    """One version of one table."""

    table: str
    version: TableVersion
    time_ms: float


def steps(table: str, versions: Iterable[TableVersion]) -> Iterator[Step]:
    """The versions of one table, with times that never go back."""
    latest = float("-inf")
    for version in versions:
        latest = max(latest, version.commit_time_ms)
        yield Step(table, version, latest)


def interleaved(single: Sequence[Iterator[Step]], groups: Sequence[Sequence[Step]]) -> Iterator[Sequence[Step]]:
    """Steps that form a transaction together, in the order of their times. A group stands at its last step's."""
    streams: list[Iterator[Sequence[Step]]] = [((step,) for step in stream) for stream in single]
    streams += [iter((sorted(group, key=lambda step: step.time_ms),)) for group in groups if group]
    return heapq.merge(*streams, key=lambda together: together[-1].time_ms)


def transaction(together: Sequence[Step], position: Position) -> Transaction:
    """The steps as one transaction."""
    changes = chain.from_iterable(step.version.changes for step in together)
    return Transaction(position, changes, commit_time_ms=together[-1].time_ms)
