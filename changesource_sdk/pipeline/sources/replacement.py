"""What a transaction must do to the tables of a source so that they hold what was read just now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from changesource_sdk.adapter import CreateTable, DropTable
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema, without_default
from changesource_sdk.pipeline.encoding.encode import TableEncoder, truncate_frame
from changesource_sdk.pipeline.encoding.schema_frames import change_frames, snapshot_schema
from changesource_sdk.pipeline.encoding.validate import check_table
from changesource_sdk.schema import Table


@dataclass(frozen=True, slots=True)
class Replacement:
    """The frames before and after the rows, and the schema of the source after them."""

    before: Sequence[bytes]
    after: Sequence[bytes]
    schema: ConsumerSchema


def replacement(held: ConsumerSchema, others: ConsumerSchema, tables: Sequence[Table]) -> Replacement:
    """How to get from `held`, the tables of a source that consumers have, to `tables` without rows.

    A table that stays as it is keeps its indexes and is emptied. `others` are the tables of the other sources, whose
    index names are taken. Raises `InvalidSchema` for a table that no consumer can hold.
    """
    declared = {table.full_name: table for table in tables}
    kept = [name for name, table in held.tables.items() if name in declared and _is_same(held, table, declared[name])]
    dropped = [name for name in held.tables if name not in kept]
    created = [table for name, table in declared.items() if name not in kept]
    before = [frame for name in dropped for frame in change_frames(held, DropTable(name))]
    if kept:
        before.append(truncate_frame(TableEncoder(held.tables[name]) for name in kept))
    for name in dropped:
        held = held.apply(DropTable(name))
    around = ConsumerSchema({**others.tables, **held.tables}, {**others.indexes, **held.indexes})
    creating, after = snapshot_schema(created, around)
    for table in created:
        # Against its own source: a name that another source has is refused by the log, with its owner.
        check_table(held, table)
        around = around.apply(CreateTable(table))
        held = restricted(around, (*held.tables, table.full_name))
    return Replacement(before + creating, after, held)


def restricted(schema: ConsumerSchema, names: Iterable[str]) -> ConsumerSchema:
    """The schema of some of the tables, with their indexes."""
    wanted = set(names)
    tables = {name: table for name, table in schema.tables.items() if name in wanted}
    return ConsumerSchema(tables, {name: index for name, index in schema.indexes.items() if index.table in wanted})


def _is_same(held: ConsumerSchema, table: Table, declared: Table) -> bool:
    bare = replace(declared, columns=tuple(map(without_default, declared.columns)), indexes=())
    names = {(index.name, index.unique, tuple(index.columns)) for index in held.indexes_on(table.full_name)}
    new = {(index.name, index.unique, tuple(index.columns)) for index in ConsumerSchema().indexes_for(declared)}
    return bare == table and names == new
