"""A query that one engine hydrated and another takes over."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from protocol.sync.ast_json import parse
from reference_cache.view_syncer.pipelines.query_rows import QueryRows
from reference_cache.view_syncer.pipelines.row_keys import RowKeys
from reference_cache.zql.engine.engine import Engine, Pipeline
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.schema import Row, TableSchema, schema, table
from reference_cache.zql.tables.memory import MemoryTable

SCHEMA = schema(
    [
        table("issue", {"id": "number", "owner": "number", "rank": "number"}),
        table("comment", {"id": "number", "issue": "number", "author": "number"}),
    ],
    {},
)


def related(name: str, parent: str, child: str, **more: Any) -> dict[str, Any]:
    correlation = {"parentField": [parent], "childField": [child]}
    return {"system": "client", "correlation": correlation, "subquery": {"table": name, "alias": name} | more}


def exists(related: dict[str, Any], op: str = "EXISTS", *, flip: bool = False) -> dict[str, Any]:
    return {"type": "correlatedSubquery", "op": op, "related": related, "flip": flip}


def equals(column: str, value: int) -> dict[str, Any]:
    right = {"type": "literal", "value": value}
    return {"type": "simple", "op": "=", "left": {"type": "column", "name": column}, "right": right}


COMMENTS = related("comment", "id", "issue")
OWNED = related("issue", "author", "owner", where=equals("rank", 1), alias="owned")
QUERIES: list[dict[str, Any]] = [
    {"table": "issue", "where": equals("owner", 1)},
    {"table": "issue", "orderBy": [["rank", "desc"]], "limit": 3, "related": [COMMENTS]},
    {"table": "issue", "related": [related("comment", "id", "issue", limit=2, orderBy=[["author", "asc"]])]},
    {"table": "issue", "where": exists(related("comment", "id", "issue", where=equals("author", 2)))},
    {"table": "issue", "where": exists(related("comment", "id", "issue", where=equals("author", 2)), flip=True)},
    {"table": "issue", "where": exists(COMMENTS, "NOT EXISTS")},
    {"table": "issue", "where": {"type": "or", "conditions": [equals("rank", 2), exists(COMMENTS, flip=True)]}},
    {"table": "comment", "related": [related("issue", "issue", "id", related=[COMMENTS])]},
    {"table": "comment", "where": exists(OWNED, flip=True), "related": [related("issue", "issue", "id")]},
    {"table": "issue", "related": [related("issue", "owner", "owner", where=exists(COMMENTS), limit=2)]},
]


class Tables:
    """The rows of both tables, and engines over copies of them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rows: dict[str, dict[int, Row]] = {name: {} for name in SCHEMA.tables}
        for name in self.rows:
            for number in range(25):
                self.rows[name][number] = self._row(number)

    def _row(self, number: int) -> Row:
        return number, self.random.randrange(8), self.random.randrange(4)

    def engine(self, few_readers: int) -> Engine:
        def open_source(schema: TableSchema) -> Source:
            return Source(MemoryTable(schema, self.rows[schema.name].values()), few_readers=few_readers)

        engine = Engine(SCHEMA, open_source, in_order=False)
        for name in SCHEMA.tables:
            engine.source(name)
        return engine

    def change(self) -> tuple[str, Any]:
        """A random change, made here too."""
        name, number = self.random.choice(list(self.rows)), self.random.randrange(30)
        rows, row = self.rows[name], self._row(number)
        old = rows.get(number)
        if old is None:
            rows[number] = row
            return name, add(row)
        if self.random.random() < 0.3:
            return name, remove(rows.pop(number))
        rows[number] = row
        return name, edit(row, old)

    def fresh(self, query: dict[str, Any]) -> set[tuple[str, Row]]:
        return held(hydrated(self.engine(0), query))


@pytest.mark.parametrize("few_readers", [0, 100])
@pytest.mark.parametrize("seed", range(3))
def test_a_query_taken_over_follows_changes_as_if_it_had_always_been_here(seed: int, few_readers: int) -> None:
    tables = Tables(Random(seed))
    engine = tables.engine(few_readers)
    pipelines: list[Pipeline[QueryRows]] = []
    for number, query in enumerate(QUERIES):
        if number % 3 == 0:
            pipelines.append(hydrated(engine, query))
            continue
        other = tables.engine(few_readers)
        pipelines.append(hydrated(other, query))
        for _ in range(3):  # both engines follow the same changes meanwhile
            name, change = tables.change()
            engine.push(name, change)
            other.push(name, change)
        engine.adopt(pipelines[-1], other)
        assert [list(other.source(name).connections) for name in SCHEMA.tables] == [[], []]
    for _ in range(150):
        engine.push(*tables.change())
    assert engine.failed == {}
    for query, pipeline in zip(QUERIES, pipelines, strict=True):
        if "limit" in str(query) or "EXISTS" in str(query):
            roots = {row for table, row in held(pipeline) if table == query["table"]}
            assert roots >= {row for table, row in tables.fresh(query) if table == query["table"]}
        else:
            assert held(pipeline) == tables.fresh(query)
    for pipeline in pipelines:
        engine.remove_query(pipeline)
    readers = Counter({name: len(list(engine.source(name).connections)) for name in SCHEMA.tables})
    assert readers.total() == 0


def hydrated(engine: Engine, query: dict[str, Any]) -> Pipeline[QueryRows]:
    pipeline = engine.add_query(parse(query), QueryRows(RowKeys(SCHEMA), {}))
    assert list(pipeline.hydrate()) == []
    return pipeline


def held(pipeline: Pipeline[QueryRows]) -> set[tuple[str, Row]]:
    return {(table, row) for (table, _), row in pipeline.rows.items()}
