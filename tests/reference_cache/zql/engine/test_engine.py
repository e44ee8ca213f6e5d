"""The engine: queries on shared tables, their row changes, and explanations."""

from collections import Counter
from typing import Any

import pytest

from protocol.sync.ast_json import AstError, parse
from reference_cache.zql.engine.engine import EngineError
from reference_cache.zql.format import Format
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.store import SourceError
from reference_cache.zql.schema import Row
from tests.reference_cache.zql.ivm.pipelines import SCHEMA
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind, Tables
from tests.support.zql.recording_engine import RecordingEngine, RowChange, RowLog

DATA: dict[str, list[dict[str, Any]]] = {
    "issue": [{"id": "i1", "owner": "u1", "rank": 1}, {"id": "i2", "owner": "u2", "rank": 2}],
    "comment": [{"id": "c1", "issue": "i1", "text": "x"}, {"id": "c2", "issue": "i1", "text": "y"}],
    "user": [{"id": "u1", "active": True}, {"id": "u2", "active": False}],
}


def hop(table: str, parent: str, child: str, **subquery: Any) -> dict[str, Any]:
    return {
        "system": subquery.pop("system", "client"),
        "correlation": {"parentField": [parent], "childField": [child]},
        "subquery": {"table": table, "alias": table, **subquery},
    }


def exists(related: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "correlatedSubquery", "op": "EXISTS", "related": related, **more}


def equals(column: str, value: Any) -> dict[str, Any]:
    right = {"type": "literal", "value": value}
    return {"type": "simple", "op": "=", "left": {"type": "column", "name": column}, "right": right}


COMMENTS = {"table": "issue", "related": [hop("comment", "id", "issue")]}


@pytest.fixture(params=SOURCE_KINDS)
def engine(request: pytest.FixtureRequest) -> RecordingEngine:
    kind: SourceKind = request.param
    return new_engine(kind)


def new_engine(kind: SourceKind = "memory", **options: Any) -> RecordingEngine:
    return RecordingEngine(SCHEMA, Tables(SCHEMA, DATA, kind).open_source, **options)


def hydrated(engine: RecordingEngine, query_id: str, query: dict[str, Any]) -> list[tuple[str, str, str]]:
    return said(engine.rows(query_id, parse(query)))


def said(changes: list[RowChange]) -> list[tuple[str, str, str]]:
    return [(change.query_id, change.op, change.row[0]) for change in changes]


def test_hydration_announces_every_row_of_the_tree_depth_first(engine: RecordingEngine) -> None:
    assert hydrated(engine, "q", COMMENTS) == [
        ("q", "add", "i1"),
        ("q", "add", "c1"),
        ("q", "add", "c2"),
        ("q", "add", "i2"),
    ]


def test_a_row_reached_twice_is_announced_twice(engine: RecordingEngine) -> None:
    query = {"table": "comment", "related": [hop("issue", "issue", "id")]}
    assert Counter(hydrated(engine, "q", query))["q", "add", "i1"] == 2


def test_rows_below_permissions_are_kept_back(engine: RecordingEngine) -> None:
    query = {"table": "issue", "where": exists(hop("comment", "id", "issue", system="permissions"))}
    assert hydrated(engine, "q", query) == [("q", "add", "i1")]
    assert said(engine.change("comment", edit(("c1", "i1", "!"), ("c1", "i1", "x")))) == []


def test_a_push_tells_every_query_what_it_means_for_it(engine: RecordingEngine) -> None:
    hydrated(engine, "a", COMMENTS)
    hydrated(engine, "b", {"table": "comment", "where": equals("text", "z")})
    assert said(engine.change("comment", add(("c3", "i2", "z")))) == [("a", "add", "c3"), ("b", "add", "c3")]
    assert said(engine.change("issue", remove(("i1", "u1", 1)))) == [
        ("a", "remove", "i1"),
        ("a", "remove", "c1"),
        ("a", "remove", "c2"),
    ]
    assert said(engine.change("issue", edit(("i2", "u2", 9), ("i2", "u2", 2)))) == [("a", "edit", "i2")]


def test_a_removed_query_hears_nothing(engine: RecordingEngine) -> None:
    hydrated(engine, "q", COMMENTS)
    engine.stop("q")
    assert engine.change("issue", add(("i3", None, 3))) == []
    assert len(hydrated(engine, "q", COMMENTS)) == 5


def test_a_pipeline_is_removed_once(engine: RecordingEngine) -> None:
    pipeline = engine.add_query(parse(COMMENTS), RowLog("q", []))
    engine.remove_query(pipeline)
    with pytest.raises(EngineError, match="no longer"):
        engine.remove_query(pipeline)


def test_a_query_whose_receiver_raises_fails_alone(engine: RecordingEngine) -> None:
    class Full(RowLog):
        def added(self, table: str, row: Row) -> None:
            raise OverflowError(table)

    hydrated(engine, "a", COMMENTS)
    pipeline = engine.add_query(parse(COMMENTS), Full("b", []))
    assert list(pipeline.hydrate()) == []
    assert said(engine.change("comment", add(("c3", "i2", "z")))) == [("a", "add", "c3")]
    assert [(each, str(error)) for each, error in engine.failed.items()] == [(pipeline, "comment")]
    assert said(engine.change("comment", remove(("c3", "i2", "z")))) == [("a", "remove", "c3")]


def test_unknown_names_are_refused_with_their_place(engine: RecordingEngine) -> None:
    with pytest.raises(EngineError, match="nothing"):
        engine.push("nothing", add(("x",)))
    with pytest.raises(AstError, match="where"):
        engine.start("q", parse({"table": "issue", "where": equals("colour", 1)}))


def test_a_refused_change_leaves_no_trace() -> None:
    engine = new_engine()
    hydrated(engine, "q", COMMENTS)
    with pytest.raises(SourceError):
        engine.push("issue", add(("i1", None, 1)))
    assert said(engine.change("issue", add(("i3", None, 1)))) == [("q", "add", "i3")]


def test_the_hint_that_an_exists_is_scalar_changes_nothing(engine: RecordingEngine) -> None:
    by_id = exists(hop("user", "owner", "id", where=equals("id", "u1")), scalar=True)
    assert hydrated(engine, "q", {"table": "issue", "where": by_id}) == [("q", "add", "i1"), ("q", "add", "u1")]
    assert said(engine.change("user", remove(("u1", True)))) == [("q", "remove", "i1"), ("q", "remove", "u1")]


# Explaining


def test_an_explanation_counts_what_each_operator_did(engine: RecordingEngine) -> None:
    explained = engine.explain(parse({**COMMENTS, "limit": 1}))
    figures = {meter.label: (meter.fetches, meter.rows_fetched) for meter in explained.meters.meters}
    assert figures == {
        "source issue": (1, 1),
        "take 1": (1, 1),
        "source comment": (1, 2),
        "join comment": (1, 1),
    }
    assert explained.rows_synced == {"issue": 1, "comment": 2}
    assert "rows synced: 2 of comment, 1 of issue" in str(explained)
    assert list(engine.source("issue").connections) == []
    assert explained.picture() is None


def test_an_explanation_tells_which_rows_were_read_and_how_they_were_asked_for(engine: RecordingEngine) -> None:
    explained = engine.explain(parse(COMMENTS), keep_rows=True)
    assert explained.reads.rows is not None
    read = {table: {shape: len(rows) for shape, rows in asked.items()} for table, asked in explained.reads.rows.items()}
    assert read == explained.reads.counts
    assert explained.reads.total() == sum(count for asked in read.values() for count in asked.values())
    (shape,) = explained.reads.counts["comment"]
    assert " WHERE issue = ? " in shape
    assert engine.explain(parse(COMMENTS)).reads.rows is None


# Reading in any order


@pytest.mark.parametrize("kind", SOURCE_KINDS)
@pytest.mark.parametrize(
    ("query", "is_ordered"),
    [
        (COMMENTS, False),
        ({**COMMENTS, "limit": 1}, True),
        ({**COMMENTS, "start": {"row": {"id": "i1"}, "exclusive": False}}, True),
        ({"table": "issue", "where": exists(hop("comment", "id", "issue"), flip=True)}, True),
        ({"table": "issue", "where": exists(hop("comment", "id", "issue"))}, False),
    ],
    ids=["all", "limit", "start", "flipped", "exists"],
)
def test_without_in_order_tables_are_ordered_only_where_limits_need_it(
    kind: SourceKind, query: dict[str, Any], is_ordered: bool
) -> None:
    engine = new_engine(kind, in_order=False)
    shapes = engine.explain(parse(query)).reads.counts["issue"]
    assert [("ORDER BY" in shape) for shape in shapes] == [is_ordered]
    assert Counter(hydrated(engine, "q", query)) == Counter(hydrated(new_engine(kind), "q", query))


@pytest.mark.parametrize("kind", SOURCE_KINDS)
def test_a_view_is_in_order_even_without_in_order(kind: SourceKind) -> None:
    by_id = {"table": "issue", "orderBy": [["id", "desc"]]}
    view = new_engine(kind, in_order=False).materialize(parse(by_id), Format())
    assert isinstance(view.result, list)
    assert [issue["id"] for issue in view.result] == ["i2", "i1"]


def test_with_a_cost_model_the_plan_is_explained_too() -> None:
    tables = Tables(SCHEMA, DATA, "sqlite")
    engine = RecordingEngine(SCHEMA, tables.open_source, cost_model=tables.cost_model())
    explained = engine.explain(parse({"table": "issue", "where": exists(hop("comment", "id", "issue"))}))
    assert "parent first" in str(explained)
    picture = explained.picture()
    assert picture is not None
    assert picture.startswith("flowchart")
