"""The former import path of `reference_cache.zql.query.builder`."""

from reference_cache.zql.query.builder import Queries, QueryBuilder

__all__ = ["Queries", "QueryBuilder"]
