"""From catalog to catalog: the right schema changes, in an order that can be applied."""

from dataclasses import replace

import pytest

from adapters.sqlite.catalog.ddl import known_default, migration
from adapters.sqlite.catalog.model import Catalog, ColumnDef, IndexDef, TableDef
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
from changesource_sdk.schema import Column

ID, A, B = ColumnDef(10, "id", "int8", True), ColumnDef(11, "a", "text"), ColumnDef(12, "b", "text")
T = TableDef(1, "t", (ID, A, B), ("id",), ("_rowid_",))


def catalog(*tables: TableDef) -> Catalog:
    return Catalog("origin", tables=tables)


def test_equal_catalogs_need_no_change() -> None:
    assert migration(catalog(T), catalog(T)).changes == ()


def test_a_new_identity_under_an_old_name_is_a_new_table() -> None:
    new = replace(T, id=2)
    moved = migration(catalog(T), catalog(new))
    assert moved.changes == (DropTable("t"), CreateTable(new.declared()))
    assert moved.created == (new,)


def test_a_renamed_table_takes_its_key_index_along() -> None:
    renamed = replace(T, name="s.u")
    key_index = renamed.declared().key_index
    assert key_index is not None
    expected = (RenameTable("t", "s.u"), CreateIndex(key_index), DropIndex("t_pkey"))
    assert migration(catalog(T), catalog(renamed)).changes == expected


def test_swapped_tables_pass_through_a_third_name() -> None:
    other = replace(T, id=2, name="u")
    moved = migration(catalog(T, other), catalog(replace(T, name="u"), replace(other, name="t")))
    renames = [(change.old, change.new) for change in moved.changes if isinstance(change, RenameTable)]
    assert renames == [("t", "u_moving_1"), ("u", "t"), ("u_moving_1", "u")]


def test_renamed_tables_wait_until_their_name_is_free() -> None:
    other = replace(T, id=2, name="u")
    moved = migration(catalog(T, other), catalog(replace(T, name="u"), replace(other, name="v")))
    assert [change.new for change in moved.changes if isinstance(change, RenameTable)] == ["v", "u"]


def test_columns_are_dropped_renamed_and_added_in_that_order() -> None:
    new = replace(T, columns=(ID, replace(B, name="a"), ColumnDef(13, "c", "int8")))
    expected = (
        DropColumn("t", "a"),
        AlterColumn("t", "b", Column("a", "text")),
        AddColumn("t", Column("c", "int8")),
    )
    assert migration(catalog(T), catalog(new)).changes == expected


def test_swapped_columns_pass_through_a_third_name() -> None:
    moved = migration(catalog(T), catalog(replace(T, columns=(ID, replace(A, name="b"), replace(B, name="a")))))
    renames = [(c.old_name, c.column.name) for c in moved.changes if isinstance(c, AlterColumn)]
    assert renames == [("a", "b_moving_11"), ("b", "a"), ("b_moving_11", "b")]


def test_an_index_goes_before_its_column_and_comes_after_its_column() -> None:
    old = replace(T, indexes=(IndexDef("i", (("a", "ASC"),)),))
    new = replace(T, columns=(ID, B, ColumnDef(13, "c", "text")), indexes=(IndexDef("j", (("c", "DESC"),)),))
    changes = migration(catalog(old), catalog(new)).changes
    assert [type(change) for change in changes] == [DropIndex, DropColumn, AddColumn, CreateIndex]


def test_an_index_follows_its_renamed_column_without_a_word() -> None:
    old = replace(T, indexes=(IndexDef("i", (("a", "ASC"),)),))
    new = replace(T, columns=(ID, replace(A, name="z"), B), indexes=(IndexDef("i", (("z", "ASC"),)),))
    assert migration(catalog(old), catalog(new)).changes == (AlterColumn("t", "a", Column("z", "text")),)


def test_rows_are_sent_again_when_the_schema_change_altered_them() -> None:
    retyped = replace(T, columns=(ID, replace(A, data_type="int8"), B))
    odd_default = replace(T, columns=(ID, A, B, ColumnDef(13, "c", "text", default="'it''s'")))
    doubted = replace(T, revision=1)
    for new in (retyped, odd_default, doubted):
        assert migration(catalog(T), catalog(new)).resent == (new,)
    plain_default = replace(T, columns=(ID, A, B, ColumnDef(13, "c", "text", default="'x'")))
    null_default = replace(T, columns=(ID, A, B, ColumnDef(13, "c", "text", default="NULL")))
    for new in (plain_default, null_default):
        assert migration(catalog(T), catalog(new)).resent == ()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int8", "7", 7),
        ("int8", "-7", -7),
        ("int8", "0x10", None),
        ("int8", "1.5", None),
        ("int8", "12345678901234567", None),
        ("float8", "-1.5", -1.5),
        ("float8", "1e3", None),
        ("bool", "TRUE", True),
        ("bool", "0", False),
        ("text", "'née'", "née"),
        ("text", "'it''s'", None),
        ("text", "12", None),
        ("text", "CURRENT_TIMESTAMP", None),
        ("json", "'{}'", None),
        ("text", None, None),
    ],
)
def test_only_plain_defaults_are_left_to_the_consumer(kind: str, text: str | None, value: object) -> None:
    assert known_default(ColumnDef(1, "c", kind, default=text)) == value
