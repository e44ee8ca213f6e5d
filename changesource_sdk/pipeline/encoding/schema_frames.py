"""Schema changes as they travel: one of the author's changes may be several messages.

A table is created without key, so its unique indexes follow at once, before any row: until then the consumer would not
replace rows. In a snapshot the other indexes come after the rows, where building them is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameTable,
    SchemaChange,
)
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema, without_default
from changesource_sdk.schema import Column, Index, Table, canonical_name, split_name
from protocol import changes as wire
from protocol import specs
from protocol.codec import encode
from protocol.framing import frame
from protocol.messages import Data


def data_frame(change: wire.SchemaChange) -> bytes:
    """One framed `data` message."""
    return frame(encode(Data(change=change)))


def snapshot_schema(tables: Iterable[Table], onto: ConsumerSchema | None = None) -> tuple[list[bytes], list[bytes]]:
    """The frames that come before the rows of a snapshot, and those that come after; `onto` is there already."""
    schema = onto or ConsumerSchema()
    before: list[bytes] = []
    after: list[bytes] = []
    for table in tables:
        before.append(_create_table(table))
        for index in schema.indexes_for(table):
            (before if index.unique else after).append(_create_index(index))
        schema = schema.apply(CreateTable(table))
    return before, after


def existing_schema(schema: ConsumerSchema) -> tuple[list[bytes], list[bytes]]:
    """The same for a schema as it is: every index by the name it has, which may stem from a former table name."""
    before = [_create_table(table) for table in schema.tables.values()]
    before += [_create_index(index) for index in schema.indexes.values() if index.unique]
    after = [_create_index(index) for index in schema.indexes.values() if not index.unique]
    return before, after


def change_frames(schema: ConsumerSchema, change: SchemaChange) -> Iterator[bytes]:
    """The frames of one checked schema change; `schema` is the one before it."""
    match change:
        case CreateTable(table):
            yield _create_table(table)
            yield from map(_create_index, schema.indexes_for(table))
        case DropTable(name):
            if canonical_name(name) in schema.tables:
                yield data_frame(wire.DropTable(id=_identifier(name)))
        case RenameTable(old, new):
            yield data_frame(wire.RenameTable(old=_identifier(old), new=_identifier(new)))
        case AddColumn(name, column):
            position = len(schema.tables[canonical_name(name)].columns) + 1
            yield data_frame(wire.AddColumn(table=_identifier(name), column=_column(column, position)))
        case DropColumn(name, gone):
            yield data_frame(wire.DropColumn(table=_identifier(name), column=gone))
        case AlterColumn(name, old_name, column):
            yield _alter(schema.tables[canonical_name(name)], old_name, column)
        case CreateIndex(index):
            yield _create_index(index)
        case DropIndex(name):
            if canonical_name(name) in schema.indexes:
                yield data_frame(wire.DropIndex(id=_identifier(name)))


def _identifier(full_name: str) -> specs.Identifier:
    schema, name = split_name(full_name)
    return specs.Identifier.model_validate({"schema": schema, "name": name})


def _create_table(table: Table) -> bytes:
    bare = replace(table, columns=tuple(map(without_default, table.columns)))
    return data_frame(wire.CreateTable(spec=bare.spec()))


def _create_index(index: Index) -> bytes:
    return data_frame(wire.CreateIndex(spec=index.spec()))


def _column(column: Column, position: int) -> specs.Column:
    return specs.Column(name=column.name, spec=column.spec(position))


def _alter(table: Table, old_name: str, column: Column) -> bytes:
    position = table.column_names.index(old_name) + 1
    old = table.columns[position - 1]
    new = without_default(column)
    if old_name in table.key:
        new = replace(new, optional=False)
    return data_frame(
        wire.UpdateColumn(table=_identifier(table.full_name), old=_column(old, position), new=_column(new, position))
    )
