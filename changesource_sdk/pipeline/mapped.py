"""An upstream seen through mappings: an adapter around an adapter, so that every lane runs it like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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
from changesource_sdk.adapter_wrapper import AdapterWrapper
from changesource_sdk.contract import checked_snapshot, checked_tables, checked_transactions
from changesource_sdk.errors import ChangesourceError, InvalidChange
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.mapping.change import ChangeMapper
from changesource_sdk.pipeline.mapping.declare import Mappings
from changesource_sdk.pipeline.mapping.row import RowMapper
from changesource_sdk.pipeline.mapping.source import MappedChanges, MappedSnapshot, starting_tables
from changesource_sdk.pipeline.mapping.table import MappedTable, map_tables
from changesource_sdk.schema import canonical_name


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


class MappedAdapter(AdapterWrapper):
    """The upstream as its mappings show it. Positions are the upstream's own."""

    def __init__(self, adapter: Adapter, mappings: Mappings) -> None:
        self.inner = adapter
        self.mappings = mappings
        # The schema of the log's head; set by `start_from`.
        self._logged: LoggedSchema | None = None
        # Made by the first call of `changes`, from the tables at its position; it follows their changes itself.
        self._mapper: ChangeMapper | None = None

    def tables(self) -> Sequence[Table]:
        """The tables as consumers get them."""
        return [table.target for table in map_tables(checked_tables(self.inner.tables()), self.mappings).values()]

    def snapshot(self) -> Snapshot:
        """The upstream's snapshot, with mapped tables and partitions."""
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

        return MappedSnapshot(
            snapshot.position,
            [part(partition) for partition in snapshot.partitions],
            [table.target for table in mapped.values()],
            snapshot.close,
            snapshot.watermark,
            snapshot.can_resume,
            upstream=declared,
        )

    def start_from(self, schema: LoggedSchema) -> None:
        """Continue with the schema of the log's head."""
        self._logged = schema

    def upstream_tables(self) -> tuple[Table, ...] | None:
        """The adapter's tables after the change that was read last."""
        return None if self._mapper is None else self._mapper.followed.tables

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The upstream's transactions, mapped. One that becomes empty is yielded too, since its position counts."""
        if self._mapper is None:
            self._mapper = self.change_mapper()
        mapper = self._mapper
        mapper.followed.give_to(self.inner)
        for transaction in checked_transactions(self.inner.changes(after)):
            yield replace(transaction, changes=MappedChanges(transaction.changes, mapper))

    def change_mapper(self) -> ChangeMapper:
        """A mapper for the changes after the log's head; without a log, for those from now on.

        Reads the upstream's tables only where the log does not have them. Raises `ResyncRequired` if neither is right.
        """
        kept = None if self._logged is None else self._logged.upstream
        today = checked_tables(self.inner.tables()) if kept is None else ()
        return ChangeMapper.at(starting_tables(self._logged, today, self.mappings), self.mappings)
