"""What the tail and the lanes share about a mapped source: which tables of the upstream it starts with.

The log keeps the upstream's tables of its head next to the consumers' (`encoding.logged_schema`), so a mapping starts
with the tables of the position, not with today's. A log of an earlier release lacks them. Then today's tables are used
if the mappings make of them what consumers have, and otherwise a new snapshot is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from changesource_sdk.adapter import Change, Snapshot
from changesource_sdk.errors import ResyncRequired
from changesource_sdk.followed_tables import without_defaults
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.mapping.change import ChangeMapper
from changesource_sdk.pipeline.mapping.declare import Mappings
from changesource_sdk.pipeline.mapping.table import map_tables
from changesource_sdk.schema import Column, Table


@runtime_checkable
class MappedSource(Protocol):
    """A source with mappings. It gives its adapter the tables that the adapter uses; the tail must not."""

    def start_from(self, schema: LoggedSchema) -> None:
        """Continue with the schema of the log's head. Called once, before the first `changes`; reads nothing."""

    def upstream_tables(self) -> tuple[Table, ...] | None:
        """The adapter's tables after the change that was read last; None before the first `changes`."""


@dataclass(frozen=True, slots=True)
class MappedSnapshot(Snapshot):
    """A snapshot whose `tables` are the consumers'; `upstream` are those that the adapter declared for it."""

    upstream: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class MappedChanges:
    """The changes of a transaction, mapped as they are read. `raw` are the upstream's; either can be read once."""

    raw: Iterable[Change]
    mapper: ChangeMapper

    def __iter__(self) -> Iterator[Change]:
        return self.mapper.changes(self.raw)


def skip_changes(changes: Iterable[Change]) -> None:
    """Read changes that the log has already; a mapper does not follow them, since its tables show them."""
    for _ in changes.raw if isinstance(changes, MappedChanges) else changes:
        pass


def starting_tables(logged: LoggedSchema | None, tables: Sequence[Table], mappings: Mappings) -> Sequence[Table]:
    """The upstream's tables at the log's head; `tables` are today's, for a log that does not have them.

    Raises `ResyncRequired` if today's tables cannot have been those of the head.
    """
    if logged is not None and logged.upstream is not None:
        return logged.upstream
    targets = [table.target for table in map_tables(tables, mappings).values()]
    if logged is not None and _columns(targets) != _columns(logged.consumer.tables.values()):
        raise ResyncRequired(
            "upstream-tables-unknown",
            "the log was written by a release that did not keep the upstream's tables, and they have changed since",
            where="mappings",
            fix="nothing to do: the upstream is read again from the start and consumers are reset",
        )
    return tuple(map(without_defaults, tables))


def _columns(tables: Iterable[Table]) -> Mapping[str, tuple[Sequence[str], Mapping[str, Column]]]:
    """Keys and columns by table, in any order."""
    bare = ConsumerSchema.of(tables).tables
    return {name: (table.key, {column.name: column for column in table.columns}) for name, table in bare.items()}
