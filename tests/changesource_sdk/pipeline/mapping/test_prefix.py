"""An upstream whose names have a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    Column,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropIndex,
    DropTable,
    Index,
    Insert,
    JsonPartition,
    Position,
    RenameTable,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.pipeline.mapping.prefix import PrefixedAdapter, prefixed

USER = Table("user", [Column("id", int), Column("name", str)], indexes=[Index("by_name", ["name"])])


class _Json(RowsPartition):
    __slots__ = ()

    def json_rows(self, checked: Callable[[Row], bytes]) -> Iterable[Sequence[bytes]]:
        return [[checked(row) for row in self.row_list]]


class _Upstream:
    poll_interval = 0.3

    def __init__(self, changes: Sequence[Change] = ()) -> None:
        self._changes = changes

    def tables(self) -> Sequence[Table]:
        return [USER]

    def snapshot(self) -> Snapshot:
        return Snapshot(1, [RowsPartition("user", [{"id": 1}]), _Json("public.user", [{"id": 2}])])

    def changes(self, after: Position) -> Iterator[Transaction]:
        yield Transaction(2, self._changes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("user", "crm_user"),
        ("public.user", "crm_user"),
        ("sales.user", "sales.crm_user"),
        ("zero_0.clients", "zero_0.clients"),
        ("zero_0.mutations", "zero_0.mutations"),
        ("zero.permissions", "zero.permissions"),
        ("clients", "crm_clients"),
    ],
)
def test_names_get_the_prefix_but_for_those_that_caches_look_for(name: str, expected: str) -> None:
    assert prefixed("crm_", name) == expected


def test_tables_and_partitions_have_the_prefix_and_keep_what_they_can_do() -> None:
    adapter = PrefixedAdapter(_Upstream(), "crm_")
    (table,) = adapter.tables()
    assert (table.full_name, [index.full_name for index in table.indexes]) == ("crm_user", ["crm_by_name"])
    rows, with_json = adapter.snapshot().partitions
    assert [rows.table, with_json.table] == ["crm_user", "crm_user"]
    assert not isinstance(rows, JsonPartition)
    assert isinstance(with_json, JsonPartition)
    assert list(rows.rows()) == [{"id": 1}]
    assert adapter.poll_interval == 0.3


def test_every_change_names_the_prefixed_table() -> None:
    column = Column("age", int)
    changes: list[Change] = [
        Insert("user", {"id": 1}),
        Update("user", {"id": 1}),
        Delete("user", {"id": 1}),
        Truncate(["user", "public.note"]),
        CreateTable(USER),
        AddColumn("user", column),
        AlterColumn("user", "name", column),
        DropColumn("user", "name"),
        CreateIndex(Index("by_age", ["age"], table="user")),
        DropIndex("by_age"),
        RenameTable("user", "person"),
        DropTable("person"),
    ]
    (transaction,) = PrefixedAdapter(_Upstream(changes), "c_").changes(1)
    insert, update, delete, truncate, create, add, alter, drop, index, no_index, rename, gone = transaction.changes
    assert insert == Insert("c_user", {"id": 1})
    assert update == Update("c_user", {"id": 1})
    assert delete == Delete("c_user", {"id": 1})
    assert truncate == Truncate(["c_user", "c_note"])
    assert isinstance(create, CreateTable)
    assert [each.full_name for each in create.table.indexes] == ["c_by_name"]
    assert add == AddColumn("c_user", column)
    assert alter == AlterColumn("c_user", "name", column)
    assert drop == DropColumn("c_user", "name")
    assert index == CreateIndex(Index("c_by_age", ["age"], table="c_user"))
    assert no_index == DropIndex("c_by_age")
    assert rename == RenameTable("c_user", "c_person")
    assert gone == DropTable("c_person")
