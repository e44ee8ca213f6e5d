"""Declaring tables."""

import pickle
from datetime import datetime
from uuid import UUID

import pytest

from changesource_sdk.errors import InvalidSchema
from changesource_sdk.schema import Column, Default, Index, Table, canonical_name, literal
from protocol.specs import understood_default


def test_python_types_stand_for_data_types() -> None:
    types = [Column("c", kind).data_type for kind in (int, str, float, bool, datetime, dict, list, UUID, bytes)]
    assert types == ["int8", "text", "float8", "bool", "timestamptz", "json", "json", "uuid", "bytea"]


def test_an_unknown_python_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidSchema) as refused:
        Column("c", complex)
    assert "datetime" in refused.value.fix


def test_a_table_is_named_by_its_schema_unless_that_is_public() -> None:
    columns = [Column("id", int)]
    assert Table("issue", columns).full_name == "issue"
    assert Table("public.issue", columns).full_name == "issue"
    assert Table("zero_0.clients", columns).full_name == "zero_0.clients"
    assert Table("clients", columns, schema="zero_0").schema == "zero_0"
    assert canonical_name("public.issue") == "issue"


def test_key_columns_are_never_optional_and_make_a_unique_index() -> None:
    table = Table("app.issue", [Column("id", int), Column("title", str)])
    assert [column.optional for column in table.columns] == [False, True]
    assert table.key_index is not None
    assert table.key_index.spec().to_json() == {
        "schema": "app",
        "tableName": "issue",
        "name": "issue_pkey",
        "unique": True,
        "columns": {"id": "ASC"},
    }


def test_a_table_without_key_has_no_key_index() -> None:
    table = Table("log", [Column("line", str)], key=())
    assert table.key_index is None
    assert "primaryKey" not in table.spec().to_json()


def test_the_spec_is_what_travels() -> None:
    columns = [Column("id", "int4"), Column("mood", "mood", enum=True), Column("tags", "text[]", max_length=3)]
    assert Table("t", columns).spec().to_json()["columns"] == {
        "id": {"pos": 1, "dataType": "int4", "notNull": True},
        "mood": {"pos": 2, "dataType": "mood", "notNull": False, "pgTypeClass": "e"},
        "tags": {
            "pos": 3,
            "dataType": "text[]",
            "notNull": False,
            "characterMaximumLength": 3,
            "elemPgTypeClass": "b",
        },
    }


def test_an_index_in_a_table_knows_the_table_and_keeps_directions() -> None:
    table = Table("app.t", [Column("id", int), Column("n", int)], indexes=[Index("t_n", ["id", ("n", "DESC")])])
    (index,) = table.indexes
    assert index.table == "app.t"
    assert index.full_name == "app.t_n"
    assert index.directions == {"id": "ASC", "n": "DESC"}


def test_declarations_can_be_pickled() -> None:
    table = Table("t", [Column("id", int)], indexes=[Index("t_x", ["id"])])
    assert pickle.loads(pickle.dumps(table)) == table


@pytest.mark.parametrize("value", [0, -7, 1.5, 1e-7, 1e22, True, False, "", "it's", "a'b''c"])
def test_every_default_value_is_spelled_so_that_consumers_understand_it(value: Default) -> None:
    assert understood_default(literal(value))
