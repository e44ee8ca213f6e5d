"""An adapter's tables along its stream are what its schema changes make of them."""

from __future__ import annotations

import pytest

from changesource_sdk import (
    AddColumn,
    AlterColumn,
    Change,
    Column,
    CreateIndex,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    Index,
    Insert,
    RenameTable,
    Table,
)
from changesource_sdk.followed_tables import FollowedTables
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema

NOTE = Table("note", [Column("id", int), Column("title", str)], indexes=[Index("by_title", ["title"])])


@pytest.mark.parametrize(
    "changes",
    [
        [AddColumn("note", Column("size", int, optional=False, default=3))],
        [AlterColumn("note", "title", Column("name", str)), DropIndex("by_title"), DropColumn("note", "name")],
        [AlterColumn("note", "id", Column("number", int))],
        [RenameTable("note", "team.memo"), AddColumn("team.memo", Column("size", int))],
        [DropTable("note"), CreateTable(Table("note", [Column("id", str)]))],
        [CreateIndex(Index("by_both", ["title", ("id", "DESC")], table="note")), Insert("note", {"id": 1})],
    ],
)
def test_they_are_those_that_consumers_have(changes: list[Change]) -> None:
    followed, schema = FollowedTables([NOTE]), ConsumerSchema.of([NOTE])
    for change in followed.following(changes):
        if not isinstance(change, Insert):
            schema = schema.apply(change)  # type: ignore[arg-type]
    assert followed.tables == schema.declared()


def test_a_change_that_does_not_fit_is_left_to_the_encoder() -> None:
    followed = FollowedTables([NOTE])
    for change in (DropColumn("other", "x"), RenameTable("other", "more"), DropIndex("nothing")):
        followed.follow(change)
    assert followed.tables == (NOTE,)


def test_rows_leave_them_the_same_object() -> None:
    followed = FollowedTables([NOTE])
    before = followed.tables
    followed.follow(Insert("note", {"id": 1}))
    assert followed.tables is before
