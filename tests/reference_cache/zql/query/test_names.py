import pytest

from protocol.sync.ast_json import parse, to_json
from reference_cache.zql.query.names import NameMap, UnknownNameError
from reference_cache.zql.schema import Schema
from tests.reference_cache.zql.official import QUERIES, SCHEMA

RENAMED = Schema.from_json(
    {
        "tables": {
            "issue": {
                "serverName": "issues",
                "columns": {
                    "id": {"type": "string"},
                    "ownerId": {"type": "string", "serverName": "owner_id"},
                    "title": {"type": "string"},
                },
                "primaryKey": ["id"],
            },
            "user": {
                "columns": {"id": {"type": "string", "serverName": "user_id"}, "name": {"type": "string"}},
                "primaryKey": ["id"],
            },
        }
    }
)
OWNER = {"parentField": ["ownerId"], "childField": ["id"]}
OWNER_ON_SERVER = {"parentField": ["owner_id"], "childField": ["user_id"]}


def ast(table: str, column: str, correlation: dict[str, list[str]], child: str) -> dict[str, object]:
    subquery = {"table": "user", "alias": "owner", "orderBy": [[child, "asc"]]}
    related = {"correlation": correlation, "subquery": subquery}
    simple = {
        "type": "simple",
        "op": "=",
        "left": {"type": "column", "name": column},
        "right": {"type": "literal", "value": "ownerId"},
    }
    constant = {**simple, "left": {"type": "literal", "value": "ownerId"}}
    exists = {"type": "correlatedSubquery", "op": "EXISTS", "related": related}
    return {
        "table": table,
        "where": {"type": "and", "conditions": [simple, constant, exists]},
        "related": [related],
        "start": {"row": {column: "u1", "title": "x"}, "exclusive": True},
        "orderBy": [[column, "desc"]],
    }


CLIENT = ast("issue", "ownerId", OWNER, "id")
SERVER = ast("issues", "owner_id", OWNER_ON_SERVER, "user_id")


def test_tables_columns_correlations_cursors_and_orders_are_renamed_and_aliases_are_not() -> None:
    assert to_json(NameMap.to_server(RENAMED).query(parse(CLIENT))) == SERVER


def test_the_columns_of_a_row_are_renamed() -> None:
    to_server = NameMap.to_server(RENAMED)
    assert to_server.row("issue", {"id": "i", "ownerId": None}) == {"id": "i", "owner_id": None}


@pytest.mark.parametrize("name", QUERIES)
def test_equal_names_change_nothing(name: str) -> None:
    query = parse(QUERIES[name]["ast"])
    assert NameMap.to_server(SCHEMA).query(query) == query


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    to_server = NameMap.to_server(RENAMED)
    with pytest.raises(UnknownNameError, match="did you mean 'issue'"):
        to_server.table("isue")
    with pytest.raises(UnknownNameError, match="table 'issue': unknown column 'titel'; did you mean 'title'"):
        to_server.column("issue", "titel")
