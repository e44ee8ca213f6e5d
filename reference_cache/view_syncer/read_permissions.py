"""Read permissions: what an ad hoc query may see, by the rules the application has deployed.

The rules are a JSON document in the replica (`{app}.permissions`), per table a list of conditions, one of which must
hold. A table without rules shows nothing. Named queries are not subject to them: the application wrote those itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from protocol.sync.ast import And, Condition, CorrelatedSubquery, Exists, Or, Query, Simple, map_leaves
from protocol.sync.ast_json import AstError, parse_condition
from protocol.sync.errors import ErrorKind, SyncError
from reference_cache.replica.schema import ReplicaSchema
from reference_cache.zql.query.parameters import bind
from service_kit.sqlite import quoted


@dataclass(frozen=True, slots=True)
class ReadPermissions:
    """Per table the conditions of which one must hold for a row to be seen."""

    rules: Mapping[str, tuple[Condition, ...]]

    def apply(self, query: Query, auth_data: Mapping[str, Any] | None) -> Query:
        """The query as far as this user may ask it."""
        return bind(self._restricted(query), {"authData": auth_data or {}})

    def _restricted(self, query: Query) -> Query:
        allowed = Or(self.rules.get(query.table, ()))
        own = () if query.where is None else (map_leaves(query.where, self._leaf),)
        related = tuple(self._related(each) for each in query.related)
        return replace(query, where=And((*own, allowed)), related=related)

    def _leaf(self, leaf: Simple | Exists) -> Condition:
        return replace(leaf, related=self._related(leaf.related)) if isinstance(leaf, Exists) else leaf

    def _related(self, related: CorrelatedSubquery) -> CorrelatedSubquery:
        return replace(related, subquery=self._restricted(related.subquery))


def parse_permissions(document: Any) -> ReadPermissions:
    """The rules of a permissions document; raises `SyncError` if it is not one."""
    tables = (document or {}).get("tables", {})
    try:
        rules = {table: _select_rules(spec) for table, spec in tables.items()}
    except (AstError, AttributeError, TypeError, ValueError) as error:
        raise SyncError(ErrorKind.INTERNAL, f"Could not parse upstream permissions: {error}") from None
    return ReadPermissions(rules)


def _select_rules(spec: Mapping[str, Any]) -> tuple[Condition, ...]:
    rules = (spec.get("row") or {}).get("select") or ()
    return tuple(parse_condition(condition) for _, condition in rules)


def load_permissions(connection: sqlite3.Connection, schema: ReplicaSchema, app_id: str) -> ReadPermissions:
    """The rules in the replica; none at all if there is no document."""
    table = f"{app_id}.permissions"
    if table not in schema.tables:
        return ReadPermissions({})
    row = connection.execute(f"SELECT permissions FROM {quoted(table)}").fetchone()
    return parse_permissions(None if row is None or row[0] is None else orjson.loads(row[0]))
