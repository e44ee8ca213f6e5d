"""A query written as one SQLite statement."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from protocol.sync.ast_json import parse
from reference_cache.zql.schema import schema, table
from tests.oracle.to_sql import prepare, to_sql

SCHEMA = schema(
    [
        table("issue", {"id": "number", "title": "string?", "open": "boolean?", "meta": "json?"}),
        table("comment", {"id": "number", "issueId": "number?"}),
        table("tagged", {"issueId": "number", "tagId": "number"}, ["issueId", "tagId"]),
        table("tag", {"id": "number", "name": "string"}),
    ],
    {},
)
PLAIN = {"singular": False, "relationships": {}}


@pytest.fixture
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    prepare(connection)
    connection.executescript(
        """
        CREATE TABLE issue (id, title, open, meta);
        INSERT INTO issue VALUES (1, 'Ärger', 1, '{"a":[1]}'), (2, NULL, 0, NULL), (3, 'plain', NULL, 'true');
        CREATE TABLE comment (id, issueId);
        INSERT INTO comment VALUES (10, 1), (11, 1), (12, NULL);
        CREATE TABLE tagged (issueId, tagId);
        INSERT INTO tagged VALUES (1, 5), (1, 6), (3, 5);
        CREATE TABLE tag (id, name);
        INSERT INTO tag VALUES (5, 'x'), (6, 'a');
        """
    )
    return connection


def answer(database: sqlite3.Connection, ast: dict[str, Any], format_: dict[str, Any] = PLAIN) -> Any:
    statement = to_sql(parse(ast), format_, SCHEMA)
    (text,) = database.execute(statement.text, statement.parameters).fetchone()
    return None if text is None else json.loads(text)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def where(op: str, column: str, value: object) -> dict[str, Any]:
    left = {"type": "column", "name": column}
    return {"type": "simple", "op": op, "left": left, "right": {"type": "literal", "value": value}}


def hop(parent: str, child: str, subquery: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"correlation": {"parentField": [parent], "childField": [child]}, "subquery": subquery, **more}


def test_values_come_back_with_their_types(database: sqlite3.Connection) -> None:
    first = answer(database, {"table": "issue", "limit": 1})[0]
    assert first == {"id": 1, "title": "Ärger", "open": True, "meta": {"a": [1]}}


def test_negative_comparisons_are_false_on_null(database: sqlite3.Connection) -> None:
    assert ids(answer(database, {"table": "issue", "where": where("!=", "title", "plain")})) == [1]
    assert ids(answer(database, {"table": "issue", "where": where("NOT IN", "title", [])})) == [1, 3]


def test_ilike_lowers_unicode(database: sqlite3.Connection) -> None:
    assert ids(answer(database, {"table": "issue", "where": where("ILIKE", "title", "är%")})) == [1]
    assert ids(answer(database, {"table": "issue", "where": where("LIKE", "title", "är%")})) == []


def test_a_cursor_walks_past_nulls(database: sqlite3.Connection) -> None:
    query = {"table": "issue", "orderBy": [["title", "asc"]]}
    assert ids(answer(database, {**query, "start": {"row": {"title": None, "id": 2}, "exclusive": True}})) == [3, 1]
    assert ids(answer(database, {**query, "start": {"row": {"title": None, "id": 2}, "exclusive": False}})) == [2, 3, 1]


def test_an_empty_singular_query_is_null(database: sqlite3.Connection) -> None:
    query = {"table": "issue", "where": where("=", "id", 99), "limit": 1}
    assert answer(database, query, {"singular": True, "relationships": {}}) is None


def test_a_junction_is_skipped_and_its_far_side_ordered(database: sqlite3.Connection) -> None:
    far = hop("tagId", "id", {"table": "tag", "alias": "tags", "orderBy": [["name", "asc"]]})
    near = {"table": "tagged", "alias": "tags", "related": [far]}
    query = {"table": "issue", "related": [hop("id", "issueId", near, hidden=True)]}
    result = answer(database, query, {"singular": False, "relationships": {"tags": PLAIN}})
    assert [ids(issue["tags"]) for issue in result] == [[6, 5], [], [5]]


def test_exists_with_limit_zero_never_holds(database: sqlite3.Connection) -> None:
    child = {"table": "comment", "alias": "zsubq_comments"}
    condition = {"type": "correlatedSubquery", "op": "EXISTS", "related": hop("id", "issueId", child)}
    assert ids(answer(database, {"table": "issue", "where": condition})) == [1]
    child["limit"] = 0  # type: ignore[assignment]
    assert answer(database, {"table": "issue", "where": condition}) == []


def test_a_window_beyond_a_junction_is_refused(database: sqlite3.Connection) -> None:
    near = {
        "table": "tagged",
        "alias": "t",
        "related": [hop("tagId", "id", {"table": "tag", "alias": "t", "limit": 1})],
    }
    query = {"table": "issue", "related": [hop("id", "issueId", near, hidden=True)]}
    with pytest.raises(ValueError, match="far side of a junction"):
        answer(database, query, {"singular": False, "relationships": {"t": PLAIN}})
