"""Runs a case through the engine and compares every tree with the oracles.

What must hold, at the beginning and after every transaction: each query's maintained tree equals the naive evaluator's
over the rows of that moment, and the running reference counts of its row changes cover every row in the tree and
equal those of a fresh hydration.  (Not below an unflipped EXISTS: which of many children are referenced there depends
on history.)  The naive evaluator itself is checked against SQLite at the beginning and at the end.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from protocol.sync.ast_json import parse
from reference_cache.zql.schema import Schema
from tests.oracle import database
from tests.oracle.cases import present, rows_of
from tests.oracle.changes import Rows, apply
from tests.oracle.naive import Naive
from tests.oracle.to_sql import prepare, to_sql
from tests.oracle.worlds import Json

Counts = Counter[tuple[str, str]]
"""References by table and primary key (as JSON)."""


class Run(Protocol):
    """The engine with a case's tables and first queries, hydrated; `planned` if it may have chosen flips."""

    @property
    def planned(self) -> bool: ...

    def push(self, changes: list[Json]) -> None:
        """Push one transaction, then let queries come and go."""
        ...

    def tree(self, query: int) -> Any:
        """The maintained result of a query."""
        ...

    def counts(self, query: int) -> Counts:
        """The running reference counts of a query's row changes."""
        ...

    def close(self) -> None: ...


class Disagreement(AssertionError):
    """The engine and an oracle differ; says where and how."""


Start = Callable[[Json, Rows, int], Run]
"""Start the engine on these rows with the queries that are there after so many transactions."""


def check_case(case: Json, start: Start) -> None:
    """Raise `Disagreement` (or whatever the engine raises) if a case goes wrong."""
    rows = rows_of(case)
    _check_oracles(case, rows)
    run = start(case, rows, 0)
    try:
        _compare(case, rows, run, 0)
        for done, step in enumerate(case["steps"], 1):
            for change in step:
                apply(rows, change, case["schema"]["tables"][change["table"]]["primaryKey"])
            run.push(step)
            _compare(case, rows, run, done)
            _compare_counts(case, rows, run, done, start)
    finally:
        run.close()
    _check_oracles(case, rows)


def _compare(case: Json, rows: Rows, run: Run, done: int) -> None:
    naive = Naive(rows, keys_of(case))
    for number, query in enumerate(case["queries"]):
        if not present(query, done):
            continue
        expected, found = naive.tree(query["ast"], query["format"]), run.tree(number)
        moment = f"query {number} after {done} transactions"
        if found != expected:
            raise Disagreement(f"{moment}:\nexpected {expected}\nfound    {found}")
        _check_counts(case, query, found, run.counts(number), moment)


def _compare_counts(case: Json, rows: Rows, run: Run, done: int, start: Start) -> None:
    exact = [
        number
        for number, query in enumerate(case["queries"])
        if present(query, done) and _has_exact_counts(query["ast"], run.planned)
    ]
    if not exact:
        return
    fresh = start(case, rows, done)
    for number in exact:
        if +run.counts(number) != +fresh.counts(number):
            raise Disagreement(
                f"query {number} after {done} transactions: references differ from a fresh hydration:\n"
                f"fresh   {+fresh.counts(number)}\nrunning {+run.counts(number)}"
            )
    fresh.close()


def _has_exact_counts(value: Any, planned: bool) -> bool:
    """Whether every EXISTS in a query is surely evaluated child first."""
    if isinstance(value, list):
        return all(_has_exact_counts(item, planned) for item in value)
    if not isinstance(value, dict):
        return True
    if value.get("type") == "correlatedSubquery" and (planned or value["op"] != "EXISTS" or not value.get("flip")):
        return False
    return all(_has_exact_counts(item, planned) for item in value.values())


def _check_counts(case: Json, query: Json, tree: Any, counts: Counts, moment: str) -> None:
    negative = {row: count for row, count in counts.items() if count < 0}
    if negative:
        raise Disagreement(f"{moment}: references below zero: {negative}")
    missing = [row for row in _rows_in(case, tree, query["ast"], query["format"]) if counts[row] <= 0]
    if missing:
        raise Disagreement(f"{moment}: in the tree but not referenced: {missing}")


def _rows_in(case: Json, tree: Any, ast: Json, format_: Json) -> list[tuple[str, str]]:
    found = []
    key = case["schema"]["tables"][ast["table"]]["primaryKey"]
    by_alias = {related["subquery"]["alias"]: related for related in ast.get("related", ())}
    for entry in tree if isinstance(tree, list) else [tree] if tree else []:
        found.append((ast["table"], row_key([entry[column] for column in key])))
        for alias, inner in format_["relationships"].items():
            related = by_alias[alias]
            subquery = related["subquery"]["related"][0]["subquery"] if related.get("hidden") else related["subquery"]
            found += _rows_in(case, entry[alias], subquery, inner)
    return found


def row_key(values: list[Any]) -> str:
    """A primary key as text."""
    return json.dumps(values, ensure_ascii=False)


def keys_of(case: Json) -> dict[str, list[str]]:
    return {name: table["primaryKey"] for name, table in case["schema"]["tables"].items()}


def _check_oracles(case: Json, rows: Rows) -> None:
    """Nested loops and SQLite must agree, or neither can judge."""
    naive = Naive(rows, keys_of(case))
    connection = sqlite3.connect(":memory:")
    prepare(connection)
    database.create(connection, {**case, "rows": rows})
    schema = Schema.from_json(case["schema"])
    for query in case["queries"]:
        statement = to_sql(parse(query["ast"]), query["format"], schema)
        (text,) = connection.execute(statement.text, statement.parameters).fetchone()
        if json.loads(text or "null") != naive.tree(query["ast"], query["format"]):
            raise Disagreement(f"the oracles differ on {json.dumps(query)}")
    connection.close()
