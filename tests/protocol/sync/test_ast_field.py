import pytest
from pydantic import BaseModel, ValidationError

from protocol.sync.ast import Query
from protocol.sync.ast_field import QueryField


class Desired(BaseModel):
    hash: str
    ast: QueryField


def test_a_message_holds_a_parsed_query_and_writes_it_back() -> None:
    message = Desired.model_validate({"hash": "x", "ast": {"limit": 1, "table": "issue"}})
    assert message.ast == Query("issue", limit=1)
    assert message.model_dump_json() == '{"hash":"x","ast":{"limit":1,"table":"issue"}}'


def test_a_parsed_query_is_taken_as_it_is() -> None:
    query = Query("issue")
    assert Desired(hash="x", ast=query).ast is query


def test_an_error_names_the_field_and_the_path_inside_the_query() -> None:
    with pytest.raises(ValidationError) as caught:
        Desired.model_validate({"hash": "x", "ast": {"table": "issue", "orderBy": [["id", "up"]]}})
    (error,) = caught.value.errors()
    assert error["loc"] == ("ast",)
    assert "orderBy[0][1]: 'up' is not one of asc, desc" in error["msg"]
