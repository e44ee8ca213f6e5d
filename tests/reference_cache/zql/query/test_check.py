from typing import Any

import pytest

from protocol.sync.ast_json import AstError, parse
from reference_cache.zql.query.check import check
from tests.reference_cache.zql.official import QUERIES, SCHEMA


def simple(column: str, op: str, value: object) -> dict[str, Any]:
    left, right = {"type": "column", "name": column}, {"type": "literal", "value": value}
    return {"type": "simple", "op": op, "left": left, "right": right}


def related(table: str = "comment", parent: str = "id", child: str = "issueId", **more: object) -> dict[str, Any]:
    correlation = {"parentField": [parent], "childField": [child]}
    return {"correlation": correlation, "subquery": {"table": table, "alias": "x", **more}}


def exists(*args: str, **more: Any) -> dict[str, Any]:
    return {"type": "correlatedSubquery", "op": "EXISTS", "related": related(*args, **more)}


@pytest.mark.parametrize("name", QUERIES)
def test_what_the_official_builder_sends_is_accepted(name: str) -> None:
    check(parse(QUERIES[name]["ast"]), SCHEMA)


@pytest.mark.parametrize(
    ("query", "path", "reason"),
    [
        ({"table": "isue"}, "table", "unknown table 'isue'; did you mean 'issue'?"),
        ({"table": "zzz"}, "table", "known: comment, issue"),
        (
            {"where": simple("opne", "=", True)},
            "where.left.name",
            "'issue': unknown column 'opne'; did you mean 'open'?",
        ),
        ({"where": simple("open", "=", 1)}, "where.right.value", "column 'open' holds boolean, but 1 is a number"),
        ({"where": simple("title", "IN", ["a", 2])}, "where.right.value[1]", "holds string, but 2 is a number"),
        ({"where": simple("priority", "LIKE", "1%")}, "where.left.name", "LIKE needs a string column"),
        ({"where": simple("title", "LIKE", "a\\")}, "where.right.value", "lone backslash"),
        ({"where": simple("meta", "<", 3)}, "where.left.name", "holds json, which has no order"),
        (
            {"where": {"type": "or", "conditions": [simple("open", "=", True), simple("x", "=", 1)]}},
            "where.conditions[1].left.name",
            "unknown column 'x'",
        ),
        ({"orderBy": [["id", "asc"], ["titel", "asc"]]}, "orderBy[1][0]", "did you mean 'title'?"),
        ({"orderBy": [["meta", "asc"]]}, "orderBy[0][0]", "no order"),
        ({"start": {"row": {"idd": "a"}, "exclusive": True}}, "start.row.idd", "did you mean 'id'?"),
        ({"start": {"row": {"id": 5}, "exclusive": True}}, "start.row.id", "holds string, but 5 is a number"),
        ({"related": [related("coment")]}, "related[0].subquery.table", "did you mean 'comment'?"),
        ({"related": [related(parent="idd")]}, "related[0].correlation.parentField[0]", "did you mean 'id'?"),
        ({"related": [related(child="isueId")]}, "related[0].correlation.childField[0]", "did you mean 'issueId'?"),
        (
            {"related": [related(where=exists("user", "authrId", "id"))]},
            "related[0].subquery.where.related.correlation.parentField[0]",
            "table 'comment': unknown column 'authrId'; did you mean 'authorId'?",
        ),
        (
            {"where": exists(where=simple("at", "=", "late"))},
            "where.related.subquery.where.right.value",
            "column 'at' holds number, but 'late' is a string",
        ),
    ],
)
def test_an_error_names_the_path_and_a_remedy(query: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(AstError) as caught:
        check(parse({"table": "issue", **query}), SCHEMA)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_null_and_json_columns_accept_any_literal_they_can_be_compared_with() -> None:
    check(parse({"table": "issue", "where": simple("priority", "IS", None)}), SCHEMA)
    check(parse({"table": "issue", "where": simple("meta", "=", "text")}), SCHEMA)
    check(parse({"table": "issue", "limit": 0, "where": simple("priority", "IN", list(range(100_000)))}), SCHEMA)
