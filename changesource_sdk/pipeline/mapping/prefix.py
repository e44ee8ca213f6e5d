"""An upstream whose tables and indexes have a prefix for consumers: an adapter around an adapter.

It keeps the names of several sources apart that share a log. Zero's own tables (`APP_N.clients`, `APP_N.mutations`,
`APP.permissions`) keep their names, since caches look for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from changesource_sdk.adapter import (
    Adapter,
    AddColumn,
    AlterColumn,
    Change,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropIndex,
    DropTable,
    ExplainingPartition,
    Insert,
    JsonPartition,
    Partition,
    Position,
    RenameTable,
    Row,
    Snapshot,
    Transaction,
    Truncate,
    Update,
    UsingTables,
)
from changesource_sdk.adapter_wrapper import AdapterWrapper
from changesource_sdk.contract import checked_snapshot, checked_tables, checked_transactions
from changesource_sdk.errors import ChangesourceError, InvalidChange
from changesource_sdk.schema import Index, Table, canonical_name, split_name
from protocol.specs import replica_name

_ZEROS_OWN = re.compile(r"[^.]+_\d+\.(clients|mutations)|[^.]+\.permissions")


def prefixed(prefix: str, full_name: str) -> str:
    """The name of a table or index with the prefix; its schema stays."""
    if _ZEROS_OWN.fullmatch(canonical_name(full_name)):
        return canonical_name(full_name)
    schema, name = split_name(full_name)
    return replica_name(schema, prefix + name)


def prefixed_table(prefix: str, table: Table) -> Table:
    """A table and its indexes with the prefix."""
    name = prefixed(prefix, table.full_name)
    if name == table.full_name:
        return table
    return replace(
        table, name=split_name(name)[1], indexes=[_index(prefix, table.full_name, each) for each in table.indexes]
    )


def unprefixed_table(prefix: str, table: Table) -> Table:
    """The reverse of `prefixed_table`."""
    if _ZEROS_OWN.fullmatch(table.full_name):
        return table
    indexes = [replace(index, name=index.name.removeprefix(prefix)) for index in table.indexes]
    return replace(table, name=table.name.removeprefix(prefix), indexes=indexes)


def _index(prefix: str, table: str, index: Index) -> Index:
    if _ZEROS_OWN.fullmatch(canonical_name(table)):
        return index
    return replace(index, name=prefix + index.name, table=prefixed(prefix, table))


@dataclass(frozen=True, slots=True)
class PrefixedPartition:
    """A partition of a table that has another name for consumers."""

    source: Partition
    table: str

    def rows(self) -> Iterable[Row]:
        """The rows, as they are."""
        return self.source.rows()

    def explain(self, error: InvalidChange, is_refused: Callable[[Row], bool]) -> ChangesourceError:
        """The source's error; the same one if it has none."""
        return self.source.explain(error, is_refused) if isinstance(self.source, ExplainingPartition) else error


@dataclass(frozen=True, slots=True)
class PrefixedJsonPartition(PrefixedPartition):
    """The same for a partition that writes JSON itself."""

    def json_rows(self, checked: Callable[[Row], bytes]) -> Iterable[Sequence[bytes]]:
        """JSON objects in batches, as they are."""
        assert isinstance(self.source, JsonPartition)
        return self.source.json_rows(checked)


class PrefixedAdapter(AdapterWrapper):
    """The upstream with prefixed names. Positions are the upstream's own."""

    def __init__(self, adapter: Adapter, prefix: str) -> None:
        self.inner = adapter
        self._prefix = prefix
        self._tables: dict[str, str] = {}  # prefixed names by the adapter's; filled by `_name`, one entry per table

    def tables(self) -> Sequence[Table]:
        """The tables as consumers get them."""
        return [prefixed_table(self._prefix, table) for table in checked_tables(self.inner.tables())]

    def snapshot(self) -> Snapshot:
        """The upstream's snapshot, with other names."""
        snapshot = checked_snapshot(self.inner.snapshot())
        tables = None
        if snapshot.tables is not None:
            tables = [prefixed_table(self._prefix, table) for table in checked_tables(snapshot.tables)]
        return replace(snapshot, partitions=list(map(self._partition, snapshot.partitions)), tables=tables)

    def _partition(self, partition: Partition) -> Partition:
        kind = PrefixedJsonPartition if isinstance(partition, JsonPartition) else PrefixedPartition
        return kind(partition, self._name(partition.table))

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The upstream's transactions, with other names."""
        for transaction in checked_transactions(self.inner.changes(after)):
            yield replace(transaction, changes=map(self._change, transaction.changes))

    def use_tables(self, tables: Sequence[Table]) -> None:
        """Give the inner adapter its tables by its own names, if it asks for them."""
        if isinstance(self.inner, UsingTables):
            self.inner.use_tables([unprefixed_table(self._prefix, table) for table in tables])

    def _name(self, table: str) -> str:
        name = self._tables.get(table)
        if name is None:
            name = self._tables[table] = prefixed(self._prefix, table)
        return name

    def _change(self, change: Change) -> Change:
        match change:
            case Insert() | Update() | Delete() | AddColumn() | DropColumn() | AlterColumn():
                return replace(change, table=self._name(change.table))
            case Truncate(tables):
                return Truncate(list(map(self._name, tables)))
            case CreateTable(table):
                return CreateTable(prefixed_table(self._prefix, table))
            case DropTable(name):
                return DropTable(self._name(name))
            case RenameTable(old, new):
                return RenameTable(self._name(old), self._name(new))
            case CreateIndex(index):
                return CreateIndex(_index(self._prefix, index.table, index))
            case DropIndex(name):
                return DropIndex(prefixed(self._prefix, name))
        return change  # not a change; refused by the encoder
