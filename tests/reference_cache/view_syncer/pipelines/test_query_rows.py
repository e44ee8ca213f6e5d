"""The rows of running queries, and the net effect of a transaction on each."""

from __future__ import annotations

import pytest

from protocol.sync.ast import Column, Literal, Query, Simple
from reference_cache.view_syncer.pipelines.query_rows import QueryRows, TooManyRows
from reference_cache.view_syncer.pipelines.row_keys import RowKeys
from reference_cache.zql.engine.engine import Engine, EngineError, Pipeline
from reference_cache.zql.ivm.change import SourceChange, add, edit, remove
from reference_cache.zql.schema import schema, table
from reference_cache.zql.tables.memory import memory_source

ISSUE = table("issue", {"id": "number", "owner": "string", "title": "string"})
SCHEMA = schema([ISSUE], {})
FIRST, SECOND = (1, "ann", "one"), (2, "bob", "two")


class Queries:
    """The queries of some owners, by owner."""

    def __init__(self) -> None:
        self.engine = Engine(SCHEMA, lambda table: memory_source(table, [FIRST, SECOND]))
        self.touched: dict[QueryRows, None] = {}
        self.pipelines: dict[str, Pipeline[QueryRows]] = {}

    def start(self, owner: str, most_rows: int = 10) -> list[object]:
        where = Simple("=", Column("owner"), Literal(owner))
        rows = QueryRows(RowKeys(SCHEMA), self.touched, most_rows)
        self.pipelines[owner] = self.engine.add_query(Query("issue", where=where), rows)
        assert list(self.pipelines[owner].hydrate()) == []
        return [row for _, row in rows.items()]

    def advance(self, *changes: SourceChange) -> list[tuple[str, list[tuple[object, object]]]]:
        """By owner: the patches as (key, row)."""
        for change in changes:
            self.engine.push("issue", change)
        touched = list(self.touched)
        self.touched.clear()
        patched: list[tuple[str, list[tuple[object, object]]]] = []
        for owner, pipeline in self.pipelines.items():
            patches: list[tuple[object, object]] = [(patch.row_id[1], patch.row) for patch in pipeline.rows.patches()]
            assert pipeline.rows in touched or not patches
            patched += [(owner, patches)] if patches else []
        return patched


@pytest.fixture
def queries() -> Queries:
    return Queries()


def test_a_constant_tells_queries_apart(queries: Queries) -> None:
    assert queries.start("ann") == [FIRST]
    assert queries.start("bob") == [SECOND]


def test_hydration_is_no_change(queries: Queries) -> None:
    queries.start("ann")
    assert queries.touched == {}
    assert queries.advance() == []


def test_a_transaction_touches_only_the_queries_that_it_affects(queries: Queries) -> None:
    queries.start("ann")
    queries.start("bob")
    assert queries.advance(edit((1, "ann", "new"), FIRST)) == [("ann", [(1, (1, "ann", "new"))])]


def test_a_patch_has_the_key_as_clients_know_it(queries: Queries) -> None:
    queries.start("ann")
    queries.engine.push("issue", remove(FIRST))
    (patch,) = queries.pipelines["ann"].rows.patches()
    assert (patch.row_id, patch.key, patch.row) == (("issue", 1), '{"id":1}', None)


def test_a_row_that_changes_owner_leaves_one_query_and_enters_the_other(queries: Queries) -> None:
    queries.start("ann")
    queries.start("bob")
    moved = (1, "bob", "one")
    assert queries.advance(edit(moved, FIRST)) == [("ann", [(1, None)]), ("bob", [(1, moved)])]


def test_a_row_added_and_removed_in_one_transaction_makes_no_patch(queries: Queries) -> None:
    queries.start("ann")
    passing = (3, "ann", "three")
    assert queries.advance(add(passing), remove(passing)) == []
    assert queries.advance(remove(FIRST), add(FIRST)) == []


def test_a_query_that_was_stopped_hears_nothing(queries: Queries) -> None:
    queries.start("ann")
    queries.engine.remove_query(queries.pipelines["ann"])
    assert queries.advance(remove(FIRST)) == []
    assert queries.touched == {}


def test_a_hydration_stops_at_the_most_rows_it_may_have(queries: Queries) -> None:
    queries.engine.push("issue", add((3, "ann", "three")))
    assert len(queries.start("ann", most_rows=2)) == 2
    with pytest.raises(TooManyRows, match="more than 1 rows"):
        queries.start("ann", most_rows=1)


def test_a_row_that_leaves_must_have_been_there() -> None:
    rows = QueryRows(RowKeys(SCHEMA), {})
    with pytest.raises(EngineError, match="was not in it"):
        rows.removed("issue", FIRST)
