from __future__ import annotations

import pytest

from changesource_sdk.adapter import AddColumn, AlterColumn, Column, DropColumn, Index, Table
from changesource_sdk.column_changes import ColumnChange, altered_table

TABLE = Table("t", [Column("id", int), Column("a", str)], indexes=[Index("t_a", ["a"])])


@pytest.mark.parametrize(
    ("change", "columns", "key"),
    [
        (AddColumn("t", Column("b", str)), ("id", "a", "b"), ("id",)),
        (AddColumn("t", Column("a", int)), ("id", "a"), ("id",)),
        (DropColumn("t", "a"), ("id",), ("id",)),
        (AlterColumn("t", "a", Column("z", str)), ("id", "z"), ("id",)),
        (AlterColumn("t", "id", Column("key", int)), ("key", "a"), ("key",)),
    ],
)
def test_columns_and_key_follow_the_change(
    change: ColumnChange, columns: tuple[str, ...], key: tuple[str, ...]
) -> None:
    after = altered_table(TABLE, change)
    assert (after.column_names, after.key, after.indexes) == (columns, key, TABLE.indexes)


def test_a_column_that_is_there_already_is_replaced() -> None:
    column = altered_table(TABLE, AddColumn("t", Column("a", int))).column("a")
    assert column is not None
    assert column.data_type == "int8"
