"""What a transaction does to the tables of a source that is read again."""

from __future__ import annotations

import json

from changesource_sdk.adapter import Column, Index, Table
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.sources.replacement import replacement, restricted
from protocol.framing import unframe

ISSUE = Table("issue", [Column("id", int), Column("title", str)], indexes=[Index("by_title", ["title"])])
USER = Table("user", [Column("id", int)])
NONE = ConsumerSchema()


def tags(frames: list[bytes]) -> list[str]:
    return [json.loads(payload)[1]["tag"] for frame in frames for payload in unframe(frame)]


def test_new_tables_are_created_with_unique_indexes_first() -> None:
    plan = replacement(NONE, NONE, [ISSUE])
    assert tags(list(plan.before)) == ["create-table", "create-index"]
    assert tags(list(plan.after)) == ["create-index"]
    assert plan.schema == ConsumerSchema.of([ISSUE])


def test_tables_that_stay_are_emptied_together() -> None:
    held = ConsumerSchema.of([ISSUE, USER])
    plan = replacement(held, NONE, [ISSUE, USER])
    assert (tags(list(plan.before)), list(plan.after)) == (["truncate"], [])
    assert plan.schema == held


def test_a_table_that_changed_is_dropped_and_created_and_one_that_is_gone_dropped() -> None:
    held = ConsumerSchema.of([ISSUE, USER])
    wider = Table("issue", [Column("id", int), Column("title", str), Column("body", str)])
    plan = replacement(held, NONE, [wider])
    assert tags(list(plan.before)) == ["drop-table", "drop-table", "create-table", "create-index"]
    assert plan.schema == ConsumerSchema.of([wider])


def test_another_index_makes_another_table() -> None:
    plan = replacement(ConsumerSchema.of([ISSUE]), NONE, [Table("issue", ISSUE.columns)])
    assert tags(list(plan.before)) == ["drop-table", "create-table", "create-index"]


def test_a_key_index_gets_a_name_that_other_sources_leave_free() -> None:
    others = ConsumerSchema.of([Table("a", [Column("id", int)], indexes=[Index("user_pkey", ["id"])])])
    plan = replacement(NONE, others, [USER])
    assert list(plan.schema.indexes) == ["user_pkey1"]
    assert list(plan.schema.tables) == ["user"]


def test_the_schema_of_some_tables_has_their_indexes() -> None:
    both = ConsumerSchema.of([ISSUE, USER])
    assert restricted(both, ["user"]) == ConsumerSchema.of([USER])
