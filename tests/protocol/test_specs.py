import pytest
from pydantic import ValidationError

from protocol.specs import (
    Column,
    ColumnSpec,
    Identifier,
    IndexSpec,
    Relation,
    RowKey,
    TableSpec,
    replica_name,
    sql_default,
    understood_default,
)


def test_tables_of_public_go_by_their_bare_name() -> None:
    assert replica_name("public", "issue") == "issue"
    assert Identifier(schema_name="zero_0", name="clients").replica_name == "zero_0.clients"


def test_an_index_knows_the_replica_name_of_its_table() -> None:
    index = IndexSpec(schema_name="app", table_name="t", name="t_pkey", unique=True, columns={"id": "ASC"})
    assert (index.replica_name, index.replica_table) == ("app.t_pkey", "app.t")


def test_a_spec_is_written_with_wire_names_and_without_what_was_not_given() -> None:
    column = ColumnSpec(pos=1, data_type="text", not_null=True)
    spec = TableSpec(schema_name="public", name="issue", columns={"id": column}, primary_key=("id",))
    assert spec.to_json() == {
        "schema": "public",
        "name": "issue",
        "columns": {"id": {"pos": 1, "dataType": "text", "notNull": True}},
        "primaryKey": ("id",),
    }


def test_a_field_that_is_unknown_is_kept_and_one_that_is_none_left_out() -> None:
    given = {"pos": 0, "dataType": "text", "dflt": None, "typeOID": 25}
    assert ColumnSpec.model_validate(given).to_json() == {"pos": 0, "dataType": "text", "typeOID": 25}


def test_values_are_not_converted() -> None:
    for wrong in ({"pos": "1"}, {"pos": True}, {"dataType": 5}, {"notNull": 1}, {"pgTypeClass": "x"}):
        with pytest.raises(ValidationError):
            ColumnSpec.model_validate({"pos": 1, "dataType": "text", **wrong})


def test_numbers_stay_as_they_came() -> None:
    assert repr(ColumnSpec(pos=1, data_type="text").pos) == "1"
    assert repr(ColumnSpec(pos=1.5, data_type="text").pos) == "1.5"


def test_models_cannot_be_changed() -> None:
    column = Column(name="id", spec=ColumnSpec(pos=1, data_type="text"))
    with pytest.raises(ValidationError, match="frozen"):
        column.name = "other"  # type: ignore[misc]


def test_a_column_knows_how_its_values_travel() -> None:
    mood = ColumnSpec(pos=1, data_type="mood", pg_type_class="e")
    moods = ColumnSpec(pos=1, data_type="mood[]", elem_pg_type_class="e")
    assert (mood.is_enum, mood.is_array, mood.value_kind, mood.zql_type) == (True, False, "string", "string")
    assert (moods.is_enum, moods.is_array, moods.value_kind, moods.zql_type) == (True, True, "array", "json")


def test_a_relation_has_a_key_in_either_form() -> None:
    newer = Relation(schema_name="public", name="t", row_key=RowKey(columns=("id",), type="index"))
    older = Relation(schema_name="public", name="t", key_columns=("id",), replica_identity="index")
    assert newer.key == older.key == RowKey(columns=("id",), type="index")
    assert Relation(schema_name="public", name="t", key_columns=()).key.columns == ()


def test_a_relation_without_a_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="rowKey is missing"):
        Relation(schema_name="public", name="t")


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        (None, None),
        ("", None),
        ("7", "7"),
        ("-1.5", "-1.5"),
        ("true", "1"),
        ("false", "0"),
        ("'abc'::text", "'abc'"),
        ("''::varchar", "''"),
        ("'it''s'::text", "'it''s'"),
        ("'{}'::text[]", "'[]'"),
        ("ARRAY[]::int4[]", "'[]'"),
        ("array [ ]::text[]", "'[]'"),
    ],
)
def test_understood_defaults_become_literals(text: str | None, literal: str | None) -> None:
    assert understood_default(text)
    assert sql_default(text) == literal


@pytest.mark.parametrize(
    "text",
    ["'abc'", "now()", "TRUE", "1e5", ".5", "+1", "٣", "'a'::character varying", "'a'b'::text", "'a\nb'::text",
     "7\n", "'{1}'::int4[]", "ARRAY[1]::int4[]", "nextval('s'::regclass)"],
)  # fmt: skip
def test_other_defaults_are_not_understood(text: str) -> None:
    assert not understood_default(text)
    with pytest.raises(ValueError, match="not understood"):
        sql_default(text)
