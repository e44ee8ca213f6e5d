"""Makes a failing case small: drop what can be dropped while it still fails.

Greedy and bounded: transactions, changes, rows, queries and parts of queries are left out one at a time.  A change to a
row that is no longer there (or to one that now is) makes a case illegal; such candidates are passed over.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any

from tests.oracle.cases import rows_of, tables_of
from tests.oracle.changes import apply
from tests.oracle.worlds import Json

Fails = Callable[[Json], bool]


def minimise(case: Json, fails: Fails, *, attempts: int = 2000) -> Json:
    """The smallest failing case found within so many attempts; `case` itself must fail."""
    improved = True
    while improved and attempts > 0:
        improved = False
        for smaller in _smaller(case):
            attempts -= 1
            if legal(smaller) and fails(smaller):
                case, improved = smaller, True
                break
            if attempts <= 0:
                break
    return case


def legal(case: Json) -> bool:
    """Whether every change fits the rows as they are when it comes."""
    rows = rows_of(case)
    for change in (change for step in case["steps"] for change in step):
        key = case["schema"]["tables"][change["table"]]["primaryKey"]
        present = [row for row in rows[change["table"]] if all(row[c] == change["row"][c] for c in key)]
        wanted = {"add": [], "remove": [change["row"]], "edit": [change.get("oldRow")]}[change["op"]]
        if present != wanted:
            return False
        apply(rows, change, key)
    return True


def _smaller(case: Json) -> Iterator[Json]:
    if case["schema"]["relationships"]:
        yield _without_unused(case)
    yield from _without_items(case, ["queries"], least=1)
    yield from _without_items(case, ["steps"])
    for at in range(len(case["steps"])):
        yield from _without_items(case, ["steps", at])
    for at in range(len(case["queries"])):
        yield from _simpler_queries(case, ["queries", at, "ast"], ["queries", at, "format"])
    for table in case["rows"]:
        yield from _without_items(case, ["rows", table])


def _without_unused(case: Json) -> Json:
    """Only the tables that queries or changes name; queries carry their own correlations."""
    used = tables_of(case["queries"]) | tables_of(case["steps"])
    twin = copy.deepcopy(case)
    twin["schema"] = {"tables": {t: s for t, s in twin["schema"]["tables"].items() if t in used}, "relationships": {}}
    twin["rows"] = {table: rows for table, rows in twin["rows"].items() if table in used}
    return twin


def _simpler_queries(case: Json, ast: list[Any], format_: list[Any]) -> Iterator[Json]:
    query = _at(case, ast)
    for field in ("where", "start", "orderBy", "limit"):
        if field in query and not (field == "limit" and _at(case, format_)["singular"]):
            yield _edited(case, ast, methodcaller("pop", field))
    for at, related in enumerate(query.get("related", ())):
        alias = related["subquery"]["alias"]
        inner = [*format_, "relationships", alias]
        yield _without_relationship(case, ast, format_, at, alias)
        if not related.get("hidden"):
            yield from _simpler_queries(case, [*ast, "related", at, "subquery"], inner)
        else:
            yield from _simpler_queries(case, [*ast, "related", at, "subquery", "related", 0, "subquery"], inner)
    if "where" in query:
        yield from _simpler_conditions(case, [*ast, "where"])


def _simpler_conditions(case: Json, path: list[Any]) -> Iterator[Json]:
    condition = _at(case, path)
    if "conditions" in condition:
        for at, member in enumerate(condition["conditions"]):
            yield _replaced(case, path, member)
            yield _edited(case, [*path, "conditions"], methodcaller("pop", at))
            yield from _simpler_conditions(case, [*path, "conditions", at])
    if "related" in condition:
        subquery = [*path, "related", "subquery"]
        if "where" in _at(case, subquery):
            yield _edited(case, subquery, methodcaller("pop", "where"))
            yield from _simpler_conditions(case, [*subquery, "where"])


def _without_relationship(case: Json, ast: list[Any], format_: list[Any], at: int, alias: str) -> Json:
    smaller = _edited(case, [*ast, "related"], methodcaller("pop", at))
    _at(smaller, format_)["relationships"].pop(alias, None)
    return smaller


def _without_items(case: Json, path: list[Any], *, least: int = 0) -> Iterator[Json]:
    count = len(_at(case, path))
    if count - count // 2 >= max(least, 1) and count > 3:
        yield _edited(case, path, lambda items: items.__delitem__(slice(count // 2)))
        yield _edited(case, path, lambda items: items.__delitem__(slice(count // 2, count)))
    for at in reversed(range(count if count > least else 0)):
        yield _edited(case, path, methodcaller("pop", at))


def _edited(case: Json, path: list[Any], edit: Callable[[Any], Any]) -> Json:
    twin = copy.deepcopy(case)
    edit(_at(twin, path))
    return twin


def _replaced(case: Json, path: list[Any], value: Any) -> Json:
    return _edited(case, path[:-1], lambda holder: holder.__setitem__(path[-1], copy.deepcopy(value)))


def _at(value: Any, path: list[Any]) -> Any:
    for step in path:
        value = value[step]
    return value
