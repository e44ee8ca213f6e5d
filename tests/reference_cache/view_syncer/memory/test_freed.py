"""What a query took is free once its last user has left, without waiting for the cycle collector."""

from __future__ import annotations

import gc

import pytest

from protocol.sync.ast import And, Column, Literal, Or, Simple
from reference_cache.view_syncer.pipelines.live_query import LiveQuery
from reference_cache.view_syncer.pipelines.whole_views import LARGEST_VIEW, MOST_BYTES, WholeViews
from reference_cache.zql import predicate
from reference_cache.zql.engine.engine import Pipeline
from reference_cache.zql.engine.row_set import RowSet
from reference_cache.zql.ivm.one_input import OneInput
from reference_cache.zql.ivm.operators.correlation import Correlated
from reference_cache.zql.ivm.source import Connection
from reference_cache.zql.predicate import compile_predicate
from reference_cache.zql.schema import table
from tests.reference_cache.view_syncer.clients import Client, named
from tests.reference_cache.view_syncer.conftest import QUERIES, Setup, issue


@pytest.mark.parametrize("name", list(QUERIES))
async def test_a_query_without_users_is_freed_at_once(setup: Setup, name: str) -> None:
    gc.collect()
    await setup.commit(("put", "issue", issue("1")), ("put", "label", {"issue": "1", "name": "x"}))
    clients = [Client("ann", "g1"), Client("bob", "g2"), Client("cid", "g3")]
    for client in clients:  # from the second on the encoded view is kept
        await client.connect(setup.syncer, [named(name)])
    gc.collect()
    gc.disable()
    try:
        assert remaining() != set()
        for client in clients:
            await client.close()
        await setup.syncer.housekeeping.stop_abandoned()
        assert remaining() == set()
    finally:
        gc.enable()
    assert len(setup.syncer._services.whole_views) == 0


def remaining() -> set[str]:
    """Which parts of queries are in memory."""
    parts = (LiveQuery, Pipeline, RowSet, Connection, OneInput, Correlated)
    return {type(each).__name__ for each in gc.get_objects() if isinstance(each, parts)}


def test_encoded_views_are_bounded_by_their_bytes() -> None:
    views = WholeViews()
    part = bytes(LARGEST_VIEW)
    for number in range(40):
        view = frozenset({_live(number)})
        views.note(view, [part])
        assert views.get(view) == []
        views.note(view, [part])
        assert views.get(view) == [part]
        assert views._bytes <= MOST_BYTES
    too_large = frozenset({_live(1), _live(2)})
    views.note(too_large, [part, b"x"])
    views.note(too_large, [part, b"x"])
    assert views.get(too_large) == []


def _live(number: int) -> LiveQuery:
    live = object.__new__(LiveQuery)
    live.key = str(number)
    return live


def test_the_code_of_a_large_condition_is_not_kept_for_other_queries() -> None:
    schema = table("issue", {"id": "string", "rank": "number"})
    pairs = [Simple("=", Column("rank"), Literal(number)) for number in range(500)]
    large = Or(tuple(And(tuple(pairs[start : start + 10])) for start in range(0, 500, 10)))
    before = predicate._code.cache_info().currsize
    assert not compile_predicate(large, schema)(("1", 499))
    assert predicate._code.cache_info().currsize == before
