"""Merges the versions of several tables into one stream of transactions. Pure.

Versions are merged in the order of their commit times. The versions of one table stay in their own order, even if its
clock goes backwards. The tables of a group form one transaction: everything that one poll of the group finds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from adapters.spark_tables.source import TableVersion
from changesource_sdk import Position, Transaction


@dataclass(frozen=True, slots=True)
class TableStep:
    """One version of one table."""

    table: str
    version: TableVersion
    time_ms: float  # its commit time, or that of an earlier version if that is later


def steps(table: str, versions: Iterable[TableVersion]) -> Iterator[TableStep]:
    """The versions of one table, with times that never decrease."""
    latest = float("-inf")
    for version in versions:
        latest = max(latest, version.commit_time_ms)
        yield TableStep(table, version, latest)


def interleaved(
    single: Sequence[Iterator[TableStep]], groups: Sequence[Sequence[TableStep]]
) -> Iterator[Sequence[TableStep]]:
    """The steps of each transaction, in the order of their times; a group has the time of its last step."""
    streams: list[Iterator[Sequence[TableStep]]] = [((step,) for step in stream) for stream in single]
    streams += [iter((sorted(group, key=lambda step: step.time_ms),)) for group in groups if group]
    return heapq.merge(*streams, key=lambda together: together[-1].time_ms)


def transaction(together: Sequence[TableStep], position: Position) -> Transaction:
    """The steps as one transaction."""
    changes = chain.from_iterable(step.version.changes for step in together)
    return Transaction(position, changes, commit_time_ms=together[-1].time_ms)
