"""Replaces static parameters by values that the server has: the user's claims, the row before a mutation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from protocol.sync.ast import Condition, CorrelatedSubquery, Exists, Literal, Query, Simple, Static, map_leaves


class UnboundParameterError(ValueError):
    """A query has static parameters, but `bind` was called without values."""

    code = "unbound-parameter"


def bind(query: Query, parameters: Mapping[str, Any] | None) -> Query:
    """The query with every static parameter replaced by a literal.

    `parameters` maps an anchor (`authData`, `preMutationRow`) to its object; a value that is missing, at any step of
    its path, is null. Raises `UnboundParameterError` only if parameters occur and `parameters` is None.
    """

    def bind_leaf(leaf: Simple | Exists) -> Condition:
        if isinstance(leaf, Exists):
            return replace(leaf, related=bind_related(leaf.related))
        left = _literal(leaf.left, parameters) if isinstance(leaf.left, Static) else leaf.left
        right = _literal(leaf.right, parameters) if isinstance(leaf.right, Static) else leaf.right
        return leaf if left is leaf.left and right is leaf.right else replace(leaf, left=left, right=right)

    def bind_related(related: CorrelatedSubquery) -> CorrelatedSubquery:
        return replace(related, subquery=bind(related.subquery, parameters))

    where = None if query.where is None else map_leaves(query.where, bind_leaf)
    return replace(query, where=where, related=tuple(map(bind_related, query.related)))


def _literal(parameter: Static, parameters: Mapping[str, Any] | None) -> Literal:
    if parameters is None:
        raise UnboundParameterError(f"the query needs {parameter.anchor} {parameter.field!r}, but no values were given")
    path = (parameter.field,) if isinstance(parameter.field, str) else parameter.field
    value: Any = parameters.get(parameter.anchor)
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return Literal(tuple(value) if isinstance(value, list) else value)
