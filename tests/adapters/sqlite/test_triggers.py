"""Trigger texts: what they are called, and that the column list is read back whatever the names are."""

import sqlite3

import pytest

from adapters.sqlite.catalog.model import ColumnDef, TableDef, UniqueSet
from adapters.sqlite.triggers import ESSENTIAL, listed_columns, parse_name, table_triggers, trigger_name

NAMES = ('quo"te', "new\nline", "a, b", " ON ", "Ünï", 'x" ON "y')


def table(names: tuple[str, ...]) -> TableDef:
    columns = tuple(ColumnDef(number, name, "text") for number, name in enumerate(names))
    return TableDef(7, 'the "table"', columns, names[:1], ("_rowid_",))


def test_a_name_tells_the_table_and_the_kind() -> None:
    assert parse_name(trigger_name(12, "replace_insert")) == (12, "replace_insert")
    assert parse_name("_changesource_by_hand") is None


def test_the_listed_columns_are_read_back() -> None:
    assert listed_columns(table_triggers(table(NAMES))[trigger_name(7, "columns")]) == NAMES


@pytest.mark.parametrize("old", NAMES)
def test_sqlite_keeps_the_list_up_to_date(old: str) -> None:
    db = sqlite3.connect(":memory:")
    quoted = ['"' + name.replace('"', '""') + '"' for name in NAMES]
    db.execute(f'CREATE TABLE "the ""table""" ({", ".join(quoted)})')
    db.execute("CREATE TABLE _changesource_changes (seq INTEGER PRIMARY KEY, tbl, op, k1)")
    for sql in table_triggers(table(NAMES)).values():
        db.execute(sql)
    db.execute(f'ALTER TABLE "the ""table""" RENAME COLUMN {quoted[NAMES.index(old)]} TO "new ""name"')
    query = "SELECT sql FROM sqlite_schema WHERE name = ?"
    (sql,) = db.execute(query, (trigger_name(7, "columns"),)).fetchone()
    assert listed_columns(sql) == tuple('new "name' if name == old else name for name in NAMES)


def test_only_tables_with_further_constraints_pay_for_looking_at_what_is_replaced() -> None:
    plain = table(("id", "mail"))
    with_constraint = TableDef(7, "t", plain.columns, ("id",), ("_rowid_",), (), (UniqueSet((("mail", "NOCASE"),)),))
    assert set(table_triggers(plain)) == {trigger_name(7, kind) for kind in ESSENTIAL}
    extra = set(table_triggers(with_constraint)) - set(table_triggers(plain))
    assert extra == {trigger_name(7, "replace_insert"), trigger_name(7, "replace_update")}
