"""The canonical form of a query: what is evaluated, and equal for queries that differ only in how they are written."""

from __future__ import annotations

from protocol.sync.ast import Query
from protocol.sync.normal_form import normalize
from reference_cache.zql.ordering import complete_query
from reference_cache.zql.query.check import check
from reference_cache.zql.query.simplify import simplify
from reference_cache.zql.schema import Schema


def canonical(query: Query, schema: Schema) -> Query:
    """The query with complete orderings, simplified, in normal form. Raises `AstError` if it does not fit the schema.

    Pure, so it may run in any thread.
    """
    check(query, schema)
    return normalize(simplify(complete_query(query, schema)))
