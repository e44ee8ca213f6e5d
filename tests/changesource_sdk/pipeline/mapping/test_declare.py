"""Mappings as they are written: read from TOML and Python, and refused by the key that is wrong."""

from __future__ import annotations

import pickle
import tomllib

import pytest

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.mapping.declare import (
    Function,
    MappedColumn,
    Mask,
    Sql,
    TableMapping,
    fingerprint,
    load_mappings,
    needs_spark,
)
from changesource_sdk.pipeline.mapping.table import map_tables
from changesource_sdk.schema import Table
from tests.changesource_sdk.pipeline.mapping.people import MAPPINGS, PERSON

PEOPLE = "tests.changesource_sdk.pipeline.mapping.people"


def written(toml: str) -> dict[str, TableMapping]:
    return dict(load_mappings(tomllib.loads(toml)["mapping"]))


def refusal(toml: str) -> ConfigurationError:
    """Why this mapping of `person` is refused."""
    with pytest.raises(ConfigurationError) as refused:
        map_tables([PERSON], written(toml))
    assert refused.value.code == "bad-mapping"
    assert refused.value.fix
    return refused.value


def test_toml_and_python_say_the_same() -> None:
    toml = f"""
    [mapping.person]
    name = "adult"
    select = ["id", "name", "email"]
    rename = {{ name = "label" }}
    filter = {{ function = "{PEOPLE}:is_adult" }}
    [mapping.person.columns]
    email = {{ mask = "redact" }}
    label_length = {{ function = "{PEOPLE}:name_length", type = "int8" }}
    """
    assert written(toml) == MAPPINGS
    assert load_mappings({}, f"{PEOPLE}:MAPPINGS") == MAPPINGS
    assert pickle.loads(pickle.dumps(MAPPINGS)) == MAPPINGS


def test_the_mapped_table_has_the_chosen_columns_key_and_indexes() -> None:
    mapped = map_tables([PERSON], MAPPINGS)["person"].target
    assert mapped.full_name == "adult"
    assert [(c.name, c.data_type, c.optional) for c in mapped.columns] == [
        ("id", "int8", False),
        ("label", "text", False),
        ("email", "text", True),
        ("label_length", "int8", True),
    ]
    assert mapped.key == ("id",)
    assert mapped.indexes == ()
    renamed = map_tables([PERSON], {"person": TableMapping(name="team.human", rename={"age": "years"})})
    (index,) = renamed["person"].target.indexes
    assert (index.table, index.directions) == ("team.human", {"years": "ASC"})


@pytest.mark.parametrize(
    ("toml", "key", "said"),
    [
        ("[mapping.persn]", "mapping.persn", "no table 'persn'"),
        ('[mapping.person]\nselekt = ["id"]', "mapping.person.selekt", "unknown key"),
        ('[mapping.person]\nselect = ["id", "nam"]', "mapping.person.select", "no column 'nam'"),
        ('[mapping.person]\nselect = "id"', "mapping.person.select", "list of column names"),
        ('[mapping.person]\nselect = ["name"]', "mapping.person.select", "key column 'id'"),
        ('[mapping.person]\nrename = { nam = "x" }', "mapping.person.rename", "no column 'nam'"),
        ('[mapping.person]\nrename = { name = "EMAIL" }', "mapping.person", "two columns"),
        ('[mapping.person]\nselect = ["id"]\nrename = { name = "x" }', "mapping.person.rename", "not selected"),
        ("[mapping.person]\nfilter = { }", "mapping.person.filter", "0 expressions"),
        ('[mapping.person]\nfilter = { mask = "null" }', "mapping.person.filter.mask", "unknown key"),
        ('[mapping.person]\nfilter = "age > 3"', "mapping.person.filter", "must be a table"),
        ('[mapping.person]\nfilter = { function = "nowhere:f" }', "mapping.person.filter", "cannot load"),
        (f'[mapping.person]\nfilter = {{ function = "{PEOPLE}:PERSON" }}', "mapping.person.filter", "not a function"),
        ('[mapping.person.columns]\nemail = { mask = "hsh" }', "mapping.person.columns.email.mask", "no mask 'hsh'"),
        ('[mapping.person.columns]\nmail = { mask = "null" }', "mapping.person.columns.mail", "to mask"),
        ('[mapping.person.columns]\nx = { sql = "1" }', "mapping.person.columns.x", "needs a type"),
        ('[mapping.person.columns]\nx = { sql = "1", mask = "null" }', "mapping.person.columns.x", "2 expressions"),
        ('[mapping.person.columns]\nid = { sql = "id + 1" }', "mapping.person.columns.id", "key column"),
        ('[mapping.person.columns]\nid = { mask = "redact" }', "mapping.person.columns.id", "same key"),
    ],
)
def test_a_wrong_mapping_is_refused_by_its_key(toml: str, key: str, said: str) -> None:
    error = refusal(toml)
    assert error.where == key
    assert said in error.message


def test_two_tables_cannot_get_one_name() -> None:
    with pytest.raises(ConfigurationError, match="would both be called"):
        map_tables([PERSON, Table("human", PERSON.columns)], {"human": TableMapping(name="Person")})


@pytest.mark.parametrize(("name", "said"), [("MISSING", "cannot load"), ("NOT_MAPPINGS", "not a dict of TableMapping")])
def test_python_mappings_that_are_none_are_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_mappings({}, f"{PEOPLE}:{name}")


def test_a_table_mapped_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="mapped here and in"):
        load_mappings({"person": {}}, f"{PEOPLE}:MAPPINGS")


def test_sql_is_named_by_its_key() -> None:
    assert needs_spark(MAPPINGS) is None
    assert needs_spark({"person": TableMapping(filter=Sql("age > 3"))}) == "mapping.person.filter"


def test_the_fingerprint_changes_with_the_declaration_and_its_version_only() -> None:
    by_name = TableMapping(filter=Function(f"{PEOPLE}:is_adult"))
    same = TableMapping(filter=Function(f"{PEOPLE}:is_adult"))
    others = [
        TableMapping(filter=Function(f"{PEOPLE}:has_email")),
        TableMapping(filter=by_name.filter, version=2),
        TableMapping(columns={"email": MappedColumn(Mask("null"))}),
    ]
    assert fingerprint({"person": by_name}) == fingerprint({"person": same})
    assert len({fingerprint({"person": mapping}) for mapping in (by_name, *others)}) == 4
    assert fingerprint({}) == fingerprint({"person": TableMapping()}) == ""
