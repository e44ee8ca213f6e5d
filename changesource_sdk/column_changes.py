"""A declared table after a change of its columns, shared by everything that follows an adapter's schema changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from changesource_sdk.adapter import AddColumn, AlterColumn, DropColumn
from changesource_sdk.schema import Table

ColumnChange: TypeAlias = AddColumn | DropColumn | AlterColumn


def altered_table(table: Table, change: ColumnChange) -> Table:
    """The table after the change; a renamed key column stays in the key. Indexes are left as they are.

    A column that is added replaces one of the same name: a mapping starts with the newest tables of the upstream, which
    may show the change already.
    """
    columns, key = table.columns, table.key
    match change:
        case AddColumn(_, column):
            columns = (*(c for c in columns if c.name != column.name), column)
        case DropColumn(_, gone):
            columns = tuple(c for c in columns if c.name != gone)
        case AlterColumn(_, old_name, column):
            columns = tuple(column if c.name == old_name else c for c in columns)
            key = tuple(column.name if name == old_name else name for name in key)
    return replace(table, columns=columns, key=key)
