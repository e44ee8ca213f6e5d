"""Which queries are the same."""

from __future__ import annotations

import pytest

from protocol.sync.ast import And, Column, Literal, Query, Simple
from protocol.sync.ast_json import AstError
from reference_cache.view_syncer.pipelines.distinct_query import DistinctQuery, distinct_query
from reference_cache.zql.schema import schema, table

SCHEMA = schema([table("issue", {"id": "number", "owner": "string", "title": "string"})], {})


def distinct(query: Query) -> DistinctQuery:
    return distinct_query(query, (), SCHEMA)


def owned_by(owner: str, **more: object) -> Query:
    return Query("issue", where=Simple("=", Column("owner"), Literal(owner)), **more)  # type: ignore[arg-type]


def test_an_ordering_that_is_implied_does_not_matter() -> None:
    assert distinct(owned_by("ann")) == distinct(owned_by("ann", order_by=(("id", "asc"),)))


def test_the_order_of_conditions_does_not_matter() -> None:
    one, two = Simple("=", Column("owner"), Literal("ann")), Simple(">", Column("id"), Literal(0))
    assert distinct(Query("issue", where=And((one, two)))) == distinct(Query("issue", where=And((two, one))))


def test_a_constant_tells_queries_apart() -> None:
    ann, bob = distinct(owned_by("ann")), distinct(owned_by("bob"))
    assert ann.canonical != bob.canonical
    assert ann.key != bob.key


def test_clients_that_identify_rows_by_another_key_have_a_query_of_their_own() -> None:
    by_title = distinct_query(owned_by("ann"), (("issue", ("title",)),), SCHEMA)
    assert by_title.key != distinct(owned_by("ann")).key


def test_an_unknown_table_is_refused_by_name() -> None:
    with pytest.raises(AstError, match="isue"):
        distinct(Query("isue"))
