"""A store seen through mappings: an adapter around an adapter, so that every lane runs mapped sources as any other.

`mapped_source` turns an adapter's import path, settings and mappings into those of the `MappedAdapter`: all of it
plain values, so a mapped source travels to other processes like an unmapped one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from changesource_sdk.adapter import (
    Adapter,
    ExplainingPartition,
    Partition,
    Position,
    Row,
    Snapshot,
    Table,
    Transaction,
)
from changesource_sdk.errors import ChangesourceError, InvalidChange
from changesource_sdk.pipeline.adapter_factory import adapter_factory
from changesource_sdk.pipeline.adapter_wrapper import AdapterAround
from changesource_sdk.pipeline.contract import checked_snapshot, checked_tables, checked_transactions
from changesource_sdk.pipeline.mapping.change import ChangeMapper
from changesource_sdk.pipeline.mapping.declare import Mappings, load_mappings
from changesource_sdk.pipeline.mapping.row import RowMapper
from changesource_sdk.pipeline.mapping.table import MappedTable, map_tables
from changesource_sdk.schema import canonical_name

MAPPED_ADAPTER = f"{__name__}:MappedAdapter"
Settings = Mapping[str, object]


def mapped_source(
    adapter: str, settings: Settings, mapping: Mapping[str, object], mappings: str = ""
) -> tuple[str, Settings]:
    """Path and settings of the adapter to run: the given ones, or those of the mapped adapter around it."""
    if not mapping and not mappings:
        return adapter, settings
    return MAPPED_ADAPTER, {"adapter": adapter, "settings": settings, "mapping": mapping, "mappings": mappings}


def mappings_of(adapter: str, settings: Settings) -> Mappings:
    """The mappings of a source that `mapped_source` made; none of any other."""
    if adapter != MAPPED_ADAPTER:
        return {}
    return load_mappings(settings["mapping"], str(settings["mappings"]))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class MappedPartition:
    """A partition whose rows are filtered and mapped where they are read."""

    source: Partition
    mapped: MappedTable

    @property
    def table(self) -> str:
        """The table's name for consumers."""
        return self.mapped.target.full_name

    def rows(self) -> Iterable[Row]:
        """The rows that pass, mapped."""
        return RowMapper(self.mapped).rows(self.source.rows())

    def explain(self, error: InvalidChange, is_refused: Callable[[Row], bool]) -> ChangesourceError:
        """The source's error for the row that was refused once it was mapped; the same one if it has none."""
        if not isinstance(self.source, ExplainingPartition):
            return error
        mapper = RowMapper(self.mapped)

        def is_at_fault(row: Row) -> bool:
            try:
                return any(map(is_refused, mapper.rows([row])))
            except InvalidChange:
                return True

        return self.source.explain(error, is_at_fault)


class MappedAdapter(AdapterAround):
    """The store as its mappings show it. Positions are the store's own."""

    def __init__(self, adapter: str, settings: Settings, mapping: Mapping[str, object], mappings: str = "") -> None:
        self._take(adapter_factory(adapter, settings)(), load_mappings(mapping, mappings))

    @classmethod
    def around(cls, adapter: Adapter, mappings: Mappings) -> Self:
        """The same over an adapter at hand."""
        made = cls.__new__(cls)
        made._take(adapter, mappings)
        return made

    def _take(self, adapter: Adapter, mappings: Mappings) -> None:
        self.inner = adapter
        self.mappings = mappings
        self._mapper: ChangeMapper | None = None

    def tables(self) -> Sequence[Table]:
        """The tables as consumers get them."""
        return [table.target for table in map_tables(checked_tables(self.inner.tables()), self.mappings).values()]

    def snapshot(self) -> Snapshot:
        """The store's snapshot, with mapped tables and partitions."""
        snapshot = checked_snapshot(self.inner.snapshot())
        try:
            declared = checked_tables(self.inner.tables() if snapshot.tables is None else snapshot.tables)
            mapped = map_tables(declared, self.mappings)
        except BaseException:
            if snapshot.close is not None:
                snapshot.close()
            raise
        named = {canonical_name(name) for name in self.mappings}

        def part(partition: Partition) -> Partition:
            name = canonical_name(partition.table)
            return MappedPartition(partition, mapped[name]) if name in named else partition

        targets = [table.target for table in mapped.values()]
        return replace(snapshot, partitions=[part(partition) for partition in snapshot.partitions], tables=targets)

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The store's transactions, mapped; also those of which nothing is left, since their positions count."""
        if self._mapper is None:
            self._mapper = self.change_mapper()
        mapper = self._mapper
        for transaction in checked_transactions(self.inner.changes(after)):
            yield replace(transaction, changes=mapper.changes(transaction.changes))

    def change_mapper(self) -> ChangeMapper:
        """A mapper for the changes that follow, from the tables as they are now."""
        return ChangeMapper(map_tables(checked_tables(self.inner.tables()), self.mappings), self.mappings)
