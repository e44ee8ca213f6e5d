"""The two evaluators that judge the engine agree with each other."""

from __future__ import annotations

import json
import sqlite3

import pytest

from protocol.sync.ast_json import parse
from reference_cache.zql.schema import Schema
from tests.oracle import database
from tests.oracle.cases import make_case
from tests.oracle.minimise import legal, minimise
from tests.oracle.naive import Naive, like, simple
from tests.oracle.to_sql import prepare, to_sql


@pytest.mark.parametrize("seed", range(100))
def test_nested_loops_and_sqlite_give_the_same_tree(seed: int) -> None:
    case = make_case(seed, queries=5, transactions=0)
    naive = Naive(case["rows"], {name: table["primaryKey"] for name, table in case["schema"]["tables"].items()})
    connection = sqlite3.connect(":memory:")
    prepare(connection)
    database.create(connection, case)
    for query in case["queries"]:
        statement = to_sql(parse(query["ast"]), query["format"], Schema.from_json(case["schema"]))
        (text,) = connection.execute(statement.text, statement.parameters).fetchone()
        assert json.loads(text or "null") == naive.tree(query["ast"], query["format"])
    connection.close()


def test_the_same_seed_gives_the_same_case() -> None:
    assert make_case(7, queries=2, transactions=3) == make_case(7, queries=2, transactions=3)


def test_generated_changes_are_legal() -> None:
    assert all(legal(make_case(seed, queries=2, transactions=5)) for seed in range(50))


def test_minimising_keeps_the_failure_and_drops_the_rest() -> None:
    def fails(case: dict[str, object]) -> bool:
        return '"edit"' in json.dumps(case["steps"])

    case = next(found for seed in range(50) if fails(found := make_case(seed, queries=2, transactions=6)))
    small = minimise(case, fails)
    assert [[change["op"] for change in step] for step in small["steps"]] == [["edit"]]
    assert len(small["queries"]) == 1
    assert legal(small)


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("=", True, 1, False),
        ("IS", None, None, True),
        ("IS NOT", None, 1, True),
        ("!=", None, 1, False),
        ("NOT IN", 1, [], True),
        ("NOT IN", None, [], False),
        ("IN", True, [1], False),
        ("<", "\uffee", "\U0001f600", True),
        ("NOT LIKE", "a\nb", "a%", False),
        ("ILIKE", "É", "é", True),
    ],
)
def test_a_comparison_is_judged_by_kind_and_null(op: str, left: object, right: object, expected: bool) -> None:
    assert simple(op, left, right) is expected


def test_like_takes_escaped_and_special_characters_literally() -> None:
    assert like("a_c", "a\\_c")
    assert not like("abc", "a\\_c")
    assert not like("abc", "a.c")
