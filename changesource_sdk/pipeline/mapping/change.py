"""Applies mappings to a stream of changes: row changes, and the schema changes of mapped tables.

A filter is evaluated on the row before and on the row after a change:

| row before | passes after | sent |
|---|---|---|
| known, passed | yes | update |
| known, passed | no | delete |
| known, did not pass | yes | insert |
| known, did not pass | no | nothing |
| unknown | yes | delete of the old key if the key changed, then insert |
| unknown | no | delete |

The row before is known if the upstream sends it (an `old_key` or a deleted key with every column). An insert replaces
a row of the same key, and a delete of a row that a consumer does not have does nothing, so a consumer has the same
rows in the end whether the row before is known or not.

The mapper follows the upstream's schema: it starts with the tables of one position, and `followed` has them after each
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    BadRow,
    Change,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropIndex,
    DropTable,
    Insert,
    RenameTable,
    Row,
    Truncate,
    Update,
)
from changesource_sdk.column_changes import ColumnChange, altered_table
from changesource_sdk.errors import InvalidChange, ResyncRequired
from changesource_sdk.followed_tables import FollowedTables
from changesource_sdk.pipeline.mapping.declare import TableMapping
from changesource_sdk.pipeline.mapping.row import MAPPING_FAILED, RowMapper, mapped_bad_row
from changesource_sdk.pipeline.mapping.table import MappedTable, map_index, map_table, map_tables
from changesource_sdk.schema import Table, canonical_name


class ChangeMapper:
    """Maps a stream of changes in order; not thread-safe.

    Invariant: the mapper of a table fits the upstream's table at this point of the stream, after the last schema change
    that was mapped. `tables` are the upstream's tables at the position where the stream begins.
    """

    def __init__(self, tables: Mapping[str, MappedTable], mappings: Mapping[str, TableMapping]) -> None:
        self._mappings = {canonical_name(name): mapping for name, mapping in mappings.items()}
        # By the upstream's table name; replaced by schema changes as they are mapped.
        self._mappers = {name: RowMapper(table) for name, table in tables.items()}
        # The upstream's tables after the last change that was mapped.
        self.followed = FollowedTables([table.source for table in tables.values()])

    @classmethod
    def at(cls, upstream: Sequence[Table], mappings: Mapping[str, TableMapping]) -> ChangeMapper:
        """The mapper for the changes after a position, from the upstream's tables there. Mapped tables may be missing:
        they were dropped, and may be created again.
        """
        mapper = cls(map_tables(upstream, mappings, may_lack=True), mappings)
        # Not a copy: the log has these tables already, and is written again when there are others.
        mapper.followed.tables = tuple(upstream)
        return mapper

    def tables_with_sql(self) -> list[MappedTable]:
        """The tables, as they are now, whose mappings Spark evaluates."""
        return [mapper.table for mapper in self._mappers.values() if mapper.table.mapping.sql]

    def mapper(self, table: str) -> RowMapper | None:
        """Return the mapper of an upstream's table; None if it has no mapping or does not exist at this point."""
        name = canonical_name(table)
        return self._mappers.get(name) if name in self._mappings else None

    def changes(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The changes as consumers get them; a row that cannot be mapped is a `BadRow`."""
        for change in changes:
            try:
                yield from self.change(change)
            except InvalidChange as error:
                if not isinstance(change, Insert | Update) or error.code != MAPPING_FAILED:
                    raise
                mapper = self.mapper(change.table)
                assert mapper is not None
                yield _bad_row(mapper, change, error)
            self.followed.follow(change)

    def change(self, change: Change) -> Iterator[Change]:
        """Yield the zero, one or two changes that consumers get for a change of the upstream.

        Raises `InvalidChange` where an expression fails or needs a column that the change does not have, and
        `ResyncRequired` where a mapped table is renamed.
        """
        match change:
            case Insert(table, row):
                mapper = self.mapper(table)
                yield from (change,) if mapper is None else _insert(mapper, row)
            case Update(table, row, old_key):
                mapper = self.mapper(table)
                yield from (change,) if mapper is None else _update(mapper, row, old_key)
            case Delete(table, key):
                mapper = self.mapper(table)
                yield from (change,) if mapper is None else _delete(mapper, key)
            case BadRow(table, key, old_key, error):
                mapper = self.mapper(table)
                yield change if mapper is None else mapped_bad_row(mapper, key, old_key, error)
            case Truncate(tables):
                yield Truncate([self._target(name) for name in tables])
            case RenameTable(old, new):
                yield self._rename(old, new)
            case CreateTable(table):
                yield self._create(table)
            case DropTable(name):
                yield DropTable(self._target(name))
                self._mappers.pop(canonical_name(name), None)
            case DropIndex():
                # The index may have been left out by the mapping; consumers ignore a drop of an index they do not have.
                yield change
            case AddColumn() | DropColumn() | AlterColumn() | CreateIndex():
                yield from self._altered(change)

    def _target(self, name: str) -> str:
        mapper = self.mapper(name)
        return name if mapper is None else mapper.table.target.full_name

    def _create(self, table: Table) -> CreateTable:
        mapping = self._mappings.get(table.full_name)
        if mapping is None:
            return CreateTable(table)
        _refuse_for_sql(table.full_name, mapping, "created")
        mapped = map_table(table, mapping)
        self._mappers[table.full_name] = RowMapper(mapped)
        return CreateTable(mapped.target)

    def _rename(self, old: str, new: str) -> RenameTable:
        for name in (canonical_name(old), canonical_name(new)):
            if name in self._mappings:
                raise ResyncRequired(
                    "mapped-table-renamed",
                    f"the upstream renamed {old} to {new}, and mapping.{name} names one of them",
                    where=f"table {name}",
                    fix=f"if {name} is gone, give mapping.{name} the table's new name; a new snapshot is then taken",
                )
        return RenameTable(old, new)

    def _altered(self, change: ColumnChange | CreateIndex) -> Iterator[Change]:
        mapper = self.mapper(change.index.table if isinstance(change, CreateIndex) else change.table)
        if mapper is None:
            yield change
            return
        before = mapper.table
        if isinstance(change, CreateIndex):
            if (index := map_index(change.index, before.kept)) is not None:
                yield CreateIndex(replace(index, table=before.target.full_name))
            return
        if not isinstance(change, AddColumn):
            _refuse_for_sql(before.source.full_name, before.mapping, "altered")
        after = map_table(replace(altered_table(before.source, change), indexes=()), before.mapping)
        self._mappers[before.source.full_name] = RowMapper(after)
        yield from _column_change(after, change)


def _refuse_for_sql(table: str, mapping: TableMapping, verb: str) -> None:
    """Raise `ResyncRequired` for a table with Spark SQL: the expressions were analysed for the columns that it had, and
    would get nulls for those that are gone.
    """
    if mapping.sql:
        raise ResyncRequired(
            "sql-table-changed",
            f"the upstream {verb} {table}, whose mapping has Spark SQL for the columns it had",
            where=f"mapping.{table}",
            fix="nothing to do: the upstream is read again from the start, with the columns as they are",
        )


def _column_change(after: MappedTable, change: ColumnChange) -> Iterator[Change]:
    """Yield the change of the consumers' column; nothing if they do not have it or an expression computes it."""
    target, mapping = after.target.full_name, after.mapping
    match change:
        case AddColumn(_, column):
            name = mapping.name_of(column.name)
            if name is not None and name not in mapping.columns:
                yield AddColumn(target, replace(column, name=name))
        case DropColumn(_, gone):
            name = mapping.name_of(gone)
            if name is not None and name not in mapping.columns:
                yield DropColumn(target, name)
        case AlterColumn(_, old_name, column):
            old, new = mapping.name_of(old_name), mapping.name_of(column.name)
            if old is not None and new is not None:
                renamed = replace(column, name=new)
                computed = after.target.column(new) if new in mapping.columns else None
                yield AlterColumn(target, old, computed or renamed)


def _insert(mapper: RowMapper, row: Row) -> Iterator[Change]:
    target, row = mapper.table.target.full_name, mapper.filled(row)
    if mapper.passes(row):
        yield Insert(target, mapper.row(row))
    elif mapper.table.source.key:
        # An insert may replace a row of the same key that passed.
        yield Delete(target, mapper.key(row))


def _update(mapper: RowMapper, row: Row, old_key: Row | None) -> Iterator[Change]:
    target = mapper.table.target.full_name
    before = old_key if old_key is not None and mapper.is_whole(old_key) else None
    mapped_key = None if old_key is None else mapper.key(old_key)
    if not mapper.filters:
        yield Update(target, _mapped_part(mapper, row, before), mapped_key)
        return
    after = row if before is None else {**before, **row}
    passed, passes = None if before is None else mapper.passes(before), mapper.passes(after)
    if passes and passed:
        yield Update(target, mapper.row(after), mapped_key)
    elif passes:
        if passed is None and mapped_key is not None:
            yield Delete(target, mapped_key)
        yield Insert(target, mapper.row(_whole(mapper, after)))
    elif passed is not False:
        yield Delete(target, mapper.key(row) if mapped_key is None else mapped_key)


def _bad_row(mapper: RowMapper, change: Insert | Update, error: InvalidChange) -> BadRow:
    """The row that a change was to bring; nothing of it could be mapped but its key."""
    return mapped_bad_row(mapper, change.row, change.old_key if isinstance(change, Update) else None, error)


def _mapped_part(mapper: RowMapper, row: Row, before: Row | None) -> dict[str, object]:
    """Map an update of a table without filter: it may have some columns only, and `before` fills in the others."""
    if before is None or mapper.is_whole(row):
        return mapper.row(row)
    return mapper.row({**before, **row})


def _whole(mapper: RowMapper, row: Row) -> Row:
    if not mapper.is_whole(row):
        missing = sorted(set(mapper.table.source.column_names) - row.keys())
        raise InvalidChange(
            "mapping-needs-column",
            f"a row that may enter the filter must be whole, but the update carries no {', '.join(missing)}",
            where=f"{mapper.table.key}.filter, table {mapper.table.source.full_name}",
            fix="let the upstream send whole rows (Postgres: REPLICA IDENTITY FULL), or drop the filter",
        )
    return row


def _delete(mapper: RowMapper, key: Row) -> Iterator[Change]:
    try:
        if mapper.is_whole(key) and not mapper.passes(key):
            return
    except InvalidChange:
        # Consumers without the row ignore its deletion.
        pass
    yield Delete(mapper.table.target.full_name, mapper.key(key))
