"""The consumer's schema along the stream."""

import pytest

from changesource_sdk.adapter import AddColumn, AlterColumn, CreateIndex, DropIndex, DropTable, RenameTable
from changesource_sdk.errors import InvalidChange
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.validate import check_table
from changesource_sdk.schema import Column, Index, Table
from tests.changesource_sdk.pipeline.stream_fixtures import TABLES

SCHEMA = ConsumerSchema.of(TABLES)


def test_creating_tables_creates_their_indexes() -> None:
    assert list(SCHEMA.tables) == ["issue", "team.member"]
    assert list(SCHEMA.indexes) == ["issue_pkey", "issue_n", "team.member_pkey"]


def test_it_comes_back_from_json() -> None:
    changed = (
        SCHEMA.apply(RenameTable("team.member", "person"))
        .apply(AddColumn("issue", Column("mood", "mood", enum=True, max_length=3, default="x")))
        .apply(CreateIndex(Index("issue_mood", [("mood", "DESC")], table="issue")))
    )
    assert ConsumerSchema.from_json(changed.to_json()) == changed
    assert ConsumerSchema.from_json("") == ConsumerSchema()


def test_a_moved_table_keeps_its_index_under_the_old_name() -> None:
    moved = SCHEMA.apply(RenameTable("team.member", "person"))
    assert moved.indexes["team.member_pkey"].table == "person"
    assert list(moved.apply(DropTable("person")).indexes) == ["issue_pkey", "issue_n"]


def test_renaming_a_key_column_renames_it_everywhere() -> None:
    renamed = SCHEMA.apply(AlterColumn("issue", "id", Column("key", int)))
    assert renamed.tables["issue"].key == ("key",)
    assert renamed.tables["issue"].column("key") == Column("key", int, optional=False)
    assert renamed.indexes["issue_pkey"].directions == {"key": "ASC"}


def test_dropping_an_index_leaves_the_others() -> None:
    assert list(SCHEMA.apply(DropIndex("team.member_pkey")).indexes) == ["issue_pkey", "issue_n"]


def test_defaults_are_not_kept() -> None:
    added = SCHEMA.apply(AddColumn("issue", Column("x", int, default=5)))
    column = added.tables["issue"].column("x")
    assert column is not None
    assert column.default is None


def test_a_key_of_bytes_is_refused() -> None:
    with pytest.raises(InvalidChange) as refused:
        check_table(ConsumerSchema(), Table("file", [Column("id", bytes, optional=False), Column("name", str)]))
    assert (refused.value.code, refused.value.where) == ("bad-key-type", "table file, column id")
    assert "hexadecimal" in refused.value.fix
    check_table(ConsumerSchema(), Table("file", [Column("id", str, optional=False), Column("raw", bytes)]))
