"""Which rows must be sent again after a schema change, and what a consumer can fill in by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.postgres.catalog.model import Catalog, ColumnDef, TableDef
from adapters.postgres.schema_changes.ddl import Notice, migration
from changesource_sdk.adapter import AddColumn
from changesource_sdk.schema import Column

ID = ColumnDef(1, "id", 23, -1, "int4", not_null=True)
NAME = ColumnDef(2, "name", 25, -1, "text")
TABLE = TableDef(5, "public", "t", (ID, NAME), ("id",))
EXACT = Notice(is_exact=True)


def _added(data_type: str, default: str | None, *, enum: bool = False) -> TableDef:
    return replace(TABLE, columns=(ID, NAME, ColumnDef(3, "new", 1, -1, data_type, default=default, enum=enum)))


@pytest.mark.parametrize(
    ("data_type", "default", "value"),
    [
        ("int4", None, None),
        ("int4", "7", 7),
        ("int8", "'-7'::integer", -7),
        ("int8", "'-7'::bigint", -7),
        ("numeric", "1.25", 1.25),
        ("float8", "'-1.5'::numeric", -1.5),
        ("bool", "true", True),
        ("text", "'it''s'::text", "it's"),
        ("varchar", "'a'::character varying", "a"),
        ("varchar", "NULL::character varying", None),
    ],
)
def test_a_plain_default_is_filled_in_by_the_consumer(data_type: str, default: str | None, value: object) -> None:
    found = migration(Catalog((TABLE,)), Catalog((_added(data_type, default),)), EXACT)
    assert found.changes == (AddColumn("t", Column("new", data_type, default=value)),)  # type: ignore[arg-type]
    assert found.resent == ()


@pytest.mark.parametrize(
    ("data_type", "default"),
    [
        ("timestamptz", "now()"),
        ("int4", "nextval('s'::regclass)"),
        ("text", "CURRENT_USER"),
        ("date", "'2024-01-01'::date"),
        ("bpchar", "'a'::bpchar"),
        ("jsonb", "'{}'::jsonb"),
        ("text", "'a\\b'::text"),
        ("float4", "0.1"),
    ],
)
def test_any_other_default_takes_the_rows(data_type: str, default: str) -> None:
    new = _added(data_type, default)
    assert migration(Catalog((TABLE,)), Catalog((new,)), EXACT).resent == (new,)


@pytest.mark.parametrize(
    ("new", "notice"),
    [
        (replace(TABLE, columns=(ID, replace(NAME, type_oid=1043))), EXACT),
        (replace(TABLE, columns=(ID, replace(NAME, typmod=9))), Notice()),
        (replace(TABLE, row_filter="id > 1"), EXACT),
        (replace(TABLE, partitions=(8,)), EXACT),
        (TABLE, Notice(True, frozenset({5}))),
        (_added("int4", None), Notice()),
    ],
    ids=["type", "modifier unseen", "filter", "partition", "rewritten", "column listed"],
)
def test_rows_that_may_differ_are_sent_again(new: TableDef, notice: Notice) -> None:
    assert migration(Catalog((TABLE,)), Catalog((new,)), notice).resent == (new,)


def test_a_column_that_could_not_be_synced_before_takes_the_rows() -> None:
    before, now = replace(TABLE, unsynced=("new",)), _added("text", None)
    assert migration(Catalog((before,)), Catalog((now,)), EXACT).resent == (now,)


def test_nothing_is_sent_when_nothing_changed_for_consumers() -> None:
    now = replace(TABLE, identity="f", columns=(ID, replace(NAME, default="'x'::text")))
    found = migration(Catalog((TABLE,)), Catalog((now,)), EXACT)
    assert (found.changes, found.created, found.resent) == ((), (), ())
