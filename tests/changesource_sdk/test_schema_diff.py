"""From one set of tables to another by identities that outlive names."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameTable,
)
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.validate import check
from changesource_sdk.schema import Column, Index, Table
from changesource_sdk.schema_diff import KnownTable, has_altered_kind, schema_diff, schema_diff_by_name

A, B = Column("a", "text"), Column("b", "int8")
TABLE = Table("t", [Column("id", "int8"), A, B], indexes=[Index("t_a", ["a"])])
KNOWN = KnownTable(1, TABLE, (1, 2, 3))


def _changes(new: KnownTable) -> tuple[object, ...]:
    return schema_diff([KNOWN], [new], lambda table, column: None).changes


def test_a_renamed_column_takes_its_index_along() -> None:
    renamed = replace(TABLE, columns=[TABLE.columns[0], replace(A, name="x"), B], indexes=[Index("t_a", ["x"])])
    assert _changes(replace(KNOWN, table=renamed)) == (AlterColumn("t", "a", Column("x", "text")),)


def test_swapped_names_pass_through_a_third() -> None:
    swapped = replace(TABLE, columns=[TABLE.columns[0], replace(A, name="b"), replace(B, name="a")], indexes=[])
    assert _changes(replace(KNOWN, table=swapped)) == (
        DropIndex("t_a"),
        AlterColumn("t", "a", Column("b_moving_2", "text")),
        AlterColumn("t", "b", Column("a", "int8")),
        AlterColumn("t", "b_moving_2", Column("b", "text")),
    )


def test_a_column_dropped_and_added_under_its_name_is_another() -> None:
    assert _changes(replace(KNOWN, column_ids=(1, 2, 9))) == (DropColumn("t", "b"), AddColumn("t", B))


def test_another_key_makes_another_table() -> None:
    rekeyed = KnownTable(1, replace(TABLE, key=("a",)), (1, 2, 3))
    assert _changes(rekeyed) == (DropTable("t"), CreateTable(rekeyed.table))


def test_a_renamed_table_keeps_everything_else() -> None:
    assert _changes(KnownTable(1, replace(TABLE, name="u"), (1, 2, 3))) == (RenameTable("t", "u"),)


def test_another_schema_takes_new_indexes() -> None:
    moved = KnownTable(1, replace(TABLE, schema="s"), (1, 2, 3))
    assert _changes(moved) == (
        DropIndex("t_a"),
        RenameTable("t", "s.t"),
        CreateIndex(moved.table.indexes[0]),
    )


NAMES = st.sampled_from("abcd")


@st.composite
def known_tables(draw: st.DrawFn) -> list[KnownTable]:
    """Tables whose identities and names are drawn apart, so that two sets differ by any mixture of changes."""
    tables = []
    for name in draw(st.lists(NAMES, unique=True, max_size=3)):
        columns = draw(st.lists(NAMES, unique=True, max_size=4))
        ids = draw(st.lists(st.integers(2, 6), unique=True, min_size=len(columns), max_size=len(columns)))
        indexed = draw(st.lists(st.sampled_from(columns), unique=True)) if columns else []
        declared = [
            Column("id", "int8"),
            *(Column(column, draw(st.sampled_from(["text", "int8"]))) for column in columns),
        ]
        indexes = [Index(f"i_{name}_{column}", [column]) for column in indexed]
        tables.append((Table(f"t_{name}", declared, indexes=indexes), (1, *ids)))
    numbers = draw(st.lists(st.integers(1, 4), unique=True, min_size=len(tables), max_size=len(tables)))
    return [KnownTable(number, *table) for number, table in zip(numbers, tables, strict=True)]


@given(known_tables(), known_tables())
def test_a_consumer_gets_from_any_tables_to_any_others(old: list[KnownTable], new: list[KnownTable]) -> None:
    schema = ConsumerSchema.of(table.table for table in old)
    for change in schema_diff(old, new, lambda table, column: None).changes:
        check(schema, change)
        schema = schema.apply(change)
    wanted = ConsumerSchema.of(table.table for table in new)
    assert {name: set(table.columns) for name, table in schema.tables.items()} == {
        name: set(table.columns) for name, table in wanted.tables.items()
    }
    assert _indexed(schema) == _indexed(wanted)


def _indexed(schema: ConsumerSchema) -> set[tuple[str, tuple[object, ...]]]:
    return {(index.table, tuple(index.columns)) for index in schema.indexes.values()}


def test_tables_without_other_identities_are_known_by_their_names() -> None:
    old = [Table("a", [Column("id", "int8"), Column("x", "text")]), Table("gone", [Column("id", "int8")])]
    new = [Table("a", [Column("id", "int8"), Column("y", "text", default="z")]), Table("b", [Column("id", "int8")])]
    assert schema_diff_by_name(old, new).changes == (
        DropTable("gone"),
        DropColumn("a", "x"),
        AddColumn("a", Column("y", "text")),
        CreateTable(new[1]),
    )


def test_another_kind_of_value_needs_all_rows_again_and_a_wider_type_does_not() -> None:
    def altered(old: str, new: str) -> bool:
        tables = [[Table("a", [Column("id", "int8"), Column("x", kind)])] for kind in (old, new)]
        ((was, now),) = schema_diff_by_name(*tables).kept
        return has_altered_kind(was, now)

    assert altered("int4", "text")
    assert not altered("int4", "int8")
