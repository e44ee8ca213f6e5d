"""One pipeline for equal queries."""

from __future__ import annotations

import pytest

from protocol.sync.ast import And, Column, CorrelatedSubquery, Correlation, Exists, Literal, Query, Simple
from protocol.sync.ast_json import AstError
from reference_cache.zql.engine.engine import Engine, EngineError
from reference_cache.zql.engine.shared import SharedQueries
from reference_cache.zql.ivm.change import SourceChange, add, edit, remove
from reference_cache.zql.schema import schema, table
from reference_cache.zql.tables.memory import memory_source

ISSUE = table("issue", {"id": "number", "owner": "string", "title": "string"})
FIRST, SECOND = (1, "ann", "one"), (2, "bob", "two")


def owned_by(owner: str, **more: object) -> Query:
    return Query("issue", where=Simple("=", Column("owner"), Literal(owner)), **more)  # type: ignore[arg-type]


@pytest.fixture
def shared() -> SharedQueries:
    return SharedQueries(Engine(schema([ISSUE], {}), lambda table: memory_source(table, [FIRST, SECOND])))


def subscribe(shared: SharedQueries, query: Query) -> list[object]:
    assert list(shared.subscribe(query)) == []
    return [patch.row for patch in shared.rows(query)]


def advance(shared: SharedQueries, *changes: SourceChange) -> list[tuple[str, list[tuple[object, object]]]]:
    """By owner: the patches as (key, row)."""
    found: list[tuple[str, list[tuple[object, object]]]] = []
    for query, patches in shared.advance([("issue", change) for change in changes]):
        assert isinstance(query.where, Simple)
        assert isinstance(query.where.right, Literal)
        found.append((str(query.where.right.value), [(patch.key, patch.row) for patch in patches]))
    return found


def test_equal_queries_share_one_pipeline(shared: SharedQueries) -> None:
    subscribe(shared, owned_by("ann"))
    assert subscribe(shared, owned_by("ann", order_by=(("id", "asc"),))) == [FIRST]
    assert len(shared) == 1


def test_the_order_of_conditions_does_not_matter(shared: SharedQueries) -> None:
    one, two = Simple("=", Column("owner"), Literal("ann")), Simple(">", Column("id"), Literal(0))
    subscribe(shared, Query("issue", where=And((one, two))))
    subscribe(shared, Query("issue", where=And((two, one))))
    assert len(shared) == 1


def test_a_constant_tells_queries_apart(shared: SharedQueries) -> None:
    assert subscribe(shared, owned_by("ann")) == [FIRST]
    assert subscribe(shared, owned_by("bob")) == [SECOND]
    assert len(shared) == 2


def test_a_transaction_is_told_once_per_query_it_concerns(shared: SharedQueries) -> None:
    subscribe(shared, owned_by("ann"))
    subscribe(shared, owned_by("ann"))
    subscribe(shared, owned_by("bob"))
    assert advance(shared, edit((1, "ann", "new"), FIRST)) == [("ann", [(1, (1, "ann", "new"))])]


def test_a_row_that_changes_owner_leaves_one_query_and_enters_the_other(shared: SharedQueries) -> None:
    subscribe(shared, owned_by("ann"))
    subscribe(shared, owned_by("bob"))
    moved = (1, "bob", "one")
    assert advance(shared, edit(moved, FIRST)) == [("ann", [(1, None)]), ("bob", [(1, moved)])]


def test_what_came_and_went_in_one_transaction_is_not_told(shared: SharedQueries) -> None:
    subscribe(shared, owned_by("ann"))
    passing = (3, "ann", "three")
    assert advance(shared, add(passing), remove(passing)) == []
    assert advance(shared, remove(FIRST), add(FIRST)) == []


def test_the_pipeline_ends_with_its_last_subscriber(shared: SharedQueries) -> None:
    subscribe(shared, owned_by("ann"))
    subscribe(shared, owned_by("ann"))
    shared.unsubscribe(owned_by("ann"))
    assert len(shared) == 1
    shared.unsubscribe(owned_by("ann"))
    assert len(shared) == 0
    assert advance(shared, remove(FIRST)) == []


def test_leaving_a_query_nobody_has_is_an_error(shared: SharedQueries) -> None:
    with pytest.raises(EngineError, match="nobody has subscribed"):
        shared.unsubscribe(owned_by("ann"))


def test_a_late_subscriber_begins_with_the_rows_of_now(shared: SharedQueries) -> None:
    subscribe(shared, owned_by("ann"))
    advance(shared, edit((1, "ann", "new"), FIRST))
    assert subscribe(shared, owned_by("ann")) == [(1, "ann", "new")]


def test_a_query_whose_scalar_changed_is_told_as_the_difference() -> None:
    setting = table("setting", {"id": "number", "owner": "string"})
    rows: dict[str, list[tuple[object, ...]]] = {"issue": [FIRST, SECOND], "setting": [(1, "ann")]}
    both = schema([ISSUE, setting], {})
    shared = SharedQueries(Engine(both, lambda table: memory_source(table, rows[table.name]), use_scalars=True))
    chosen = Query("setting", alias="zsubq_setting", where=Simple("=", Column("id"), Literal(1)))
    related = CorrelatedSubquery(Correlation(("owner",), ("owner",)), chosen)
    subscribe(shared, query := Query("issue", where=Exists("EXISTS", related, scalar=True)))
    ((told, patches),) = shared.advance([("setting", edit((1, "bob"), (1, "ann")))])
    assert told.table == query.table
    assert {(patch.table, patch.key): patch.row for patch in patches} == {
        ("issue", 1): None,
        ("issue", 2): SECOND,
        ("setting", 1): (1, "bob"),
    }


def test_an_unknown_table_is_refused_by_name(shared: SharedQueries) -> None:
    with pytest.raises(AstError, match="isue"):
        shared.subscribe(Query("isue"))
