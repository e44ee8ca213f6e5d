import sqlite3
from typing import Any

import pytest

from protocol.sync.ast_json import parse_condition
from reference_cache.zql.ordering import complete_query
from reference_cache.zql.planner.cost import TableCost
from reference_cache.zql.planner.cost_model import SqliteCostModel
from reference_cache.zql.planner.planner import plan
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import hop, schema, table
from tests.reference_cache.zql.planner.statistics_database import OFFICIAL, QUESTIONS, analyzed_database

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


def small_database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE pair (a TEXT, b INT, c INT, PRIMARY KEY (a, b)) WITHOUT ROWID")
    connection.executemany("INSERT INTO pair VALUES (?, ?, ?)", [(str(i // 10), i, i % 3) for i in range(1000)])
    connection.execute("CREATE TABLE numbered (id INTEGER PRIMARY KEY, x INT, y INT)")
    connection.execute("CREATE INDEX numbered_x ON numbered (x)")
    connection.executemany("INSERT INTO numbered VALUES (?, ?, ?)", [(i, i % 500, i % 3) for i in range(5000)])
    connection.execute("ANALYZE")
    return connection


def estimated(table: str, *conditions: tuple[str, str, Any], pinned: tuple[str, ...] = (), word: str = "and") -> float:
    members = [
        {
            "type": "simple",
            "op": op,
            "left": {"type": "column", "name": column},
            "right": {"type": "literal", "value": value},
        }
        for column, op, value in conditions
    ]
    where = parse_condition({"type": word, "conditions": members}) if members else None
    return SqliteCostModel(small_database())(table, (), where, pinned or None).rows


def test_tables_without_row_ids_are_searched_by_their_key() -> None:
    assert estimated("pair", pinned=("a", "b")) == 1
    assert estimated("pair", pinned=("a",)) == 10
    assert 200 < estimated("pair", ("a", ">", "5")) < 300


def test_a_row_id_pinned_leaves_one_row() -> None:
    assert estimated("numbered", pinned=("id",)) == 1
    assert estimated("numbered", ("id", "=", 7), ("y", "=", 2)) == 1
    assert 1000 < estimated("numbered", ("id", ">", 7)) < 1500
    assert 20 < estimated("numbered", ("id", "IN", [1, 2])) < 30


def test_an_or_served_by_several_indexes_is_the_sum_of_its_branches() -> None:
    assert 10 <= estimated("numbered", ("x", "=", 7), ("id", "=", 7), word="or") <= 12


def test_both_bounds_of_a_range_leave_less_than_one() -> None:
    one, both = estimated("numbered", ("x", ">", 7)), estimated("numbered", ("x", ">", 7), ("x", "<", 9))
    assert both < one < 5000
