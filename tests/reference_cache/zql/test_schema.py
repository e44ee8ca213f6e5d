import pytest

from reference_cache.zql.schema import ColumnType, Hop, Schema, SchemaError, TableSchema, hop, schema, table
from tests.reference_cache.zql.official import SCHEMA

USER = table("user", {"id": "string", "email": "string?"}, unique=[["email"]])
ISSUE = table("issue", {"id": "string", "ownerId": "string?"})


def test_a_declared_column_may_be_null_if_marked() -> None:
    assert USER.columns == {"id": ColumnType("string"), "email": ColumnType("string", optional=True)}


def test_rows_are_tuples_in_column_order() -> None:
    assert USER.row({"email": "a@b", "id": "u1"}) == ("u1", "a@b")
    assert USER.row({"id": "u1"}) == ("u1", None)
    assert USER.named(("u1", None)) == {"id": "u1", "email": None}
    assert USER.positions(["email", "id"]) == (1, 0)


def test_the_primary_key_is_the_first_unique_key() -> None:
    assert USER.keys == (("id",), ("email",))


def test_a_single_hop_may_be_declared_bare() -> None:
    declared = schema([USER, ISSUE], {"issue": {"owner": hop("ownerId", "user", "id", "one")}})
    assert declared.relationships["issue"]["owner"] == (Hop(("ownerId",), ("id",), "user", "one"),)


def test_the_client_schema_format_is_read_with_server_names() -> None:
    read = Schema.from_json(
        {
            "tables": {
                "user": {
                    "name": "user",
                    "serverName": "users",
                    "columns": {"id": {"type": "string"}, "mail": {"type": "string", "serverName": "e_mail"}},
                    "primaryKey": ["id"],
                }
            }
        }
    )
    assert read.tables["user"].server_name == "users"
    assert read.tables["user"].server_columns == {"mail": "e_mail"}


def test_a_junction_has_two_hops() -> None:
    assert [hop.table for hop in SCHEMA.relationships["issue"]["labels"]] == ["issueLabel", "label"]


def test_a_schema_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(SchemaError, match="no primary key"):
        TableSchema("t", {"a": ColumnType("string")}, ())
    with pytest.raises(SchemaError, match=r"unknown columns \['b'\]"):
        table("t", {"a": "string"}, "b")
    with pytest.raises(SchemaError, match="'text' is no column type"):
        table("t", {"a": "text"}, "a")
    with pytest.raises(SchemaError, match="unknown table 'usr'"):
        schema([ISSUE], {"issue": {"owner": hop("ownerId", "usr", "id")}})
    with pytest.raises(SchemaError, match="unknown columns"):
        schema([ISSUE, USER], {"issue": {"owner": hop("owner", "user", "id")}})
    with pytest.raises(SchemaError, match="pairs"):
        schema([ISSUE, USER], {"issue": {"owner": hop(["id", "ownerId"], "user", "id")}})
    with pytest.raises(SchemaError, match="has 3 hops"):
        one = hop("id", "issue", "id")
        schema([ISSUE], {"issue": {"self": (one, one, one)}})
