import sqlite3
from typing import Any

import pytest

from protocol.sync.ast_json import parse_condition
from reference_cache.query.builder import Queries
from reference_cache.query.cost import TableCost
from reference_cache.query.cost_model import SqliteCostModel
from reference_cache.query.ordering import complete_query
from reference_cache.query.planner import plan
from reference_cache.query.schema import hop, schema, table
from tests.query.statistics_database import OFFICIAL, QUESTIONS, analyzed_database

SCHEMA = schema(
    [
        table(
            "issue", {"id": "string", "title": "string", "open": "boolean", "priority": "number", "ownerId": "string?"}
        ),
        table("issueLabel", {"issueId": "string", "labelId": "number", "note": "string"}, ["issueId", "labelId"]),
    ],
    {"issue": {"labels": hop("id", "issueLabel", "issueId")}},
)


def ask(model: SqliteCostModel, question: dict[str, Any]) -> TableCost:
    where = parse_condition(question["where"]) if "where" in question else None
    constraint = tuple(question["constraint"]) if "constraint" in question else None
    return model(question["table"], tuple(tuple(part) for part in question["orderBy"]), where, constraint)


@pytest.fixture(scope="module")
def model() -> SqliteCostModel:
    return SqliteCostModel(analyzed_database())


@pytest.mark.parametrize(
    ("question", "official"),
    list(zip(QUESTIONS["questions"], OFFICIAL["costs"], strict=True)),
    ids=[question["name"] for question in QUESTIONS["questions"]],
)
def test_estimates_equal_the_official_ones(
    model: SqliteCostModel, question: dict[str, Any], official: dict[str, Any]
) -> None:
    cost = ask(model, question)
    assert cost.rows == official["rows"]
    assert cost.startup == pytest.approx(official["startup"])


def test_names_and_literals_of_any_shape_can_be_planned() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE "od""d" ("a b" TEXT PRIMARY KEY, "x" REAL)')
    conditions = [
        {
            "type": "simple",
            "op": op,
            "left": {"type": "column", "name": "a b"},
            "right": {"type": "literal", "value": value},
        }
        for op, value in [
            ("=", "it's"),
            ("ILIKE", "%\\_"),
            ("IS NOT", None),
            ("NOT IN", ["a"]),
            ("<", 1e300),
            ("=", True),
        ]
    ]
    empty = [{"type": "or", "conditions": []}, {"type": "and", "conditions": []}]
    where = parse_condition({"type": "or", "conditions": [*conditions, *empty]})
    assert SqliteCostModel(connection)('od"d', (("a b", "desc"),), where, ("x",)).rows > 0


def test_the_planner_runs_on_a_real_database(model: SqliteCostModel) -> None:
    selective = Queries(SCHEMA).table("issueLabel").where("note", "n").ast
    rare = Queries(SCHEMA).table("issue").where_exists("labels", lambda q: q.where("issueId", "i7"))
    frequent = Queries(SCHEMA).table("issue").where("id", "i7").where_exists("labels")
    assert plan(complete_query(selective, SCHEMA), model) == complete_query(selective, SCHEMA)
    assert "flip=True" in repr(plan(complete_query(rare.ast, SCHEMA), model))
    assert "flip=False" in repr(plan(complete_query(frequent.ast, SCHEMA), model))
