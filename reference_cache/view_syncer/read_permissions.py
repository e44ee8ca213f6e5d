"""Read permissions: which rows an ad hoc query may see, by the rules the application has deployed.

The rules are a JSON document in the replica (`{app}.permissions`): per table a list of conditions; a row is
visible if one of them holds. A table without rules shows nothing. Named queries are not restricted: the application
defines them itself.
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
    """Conditions per table; a row is visible if one of them holds."""

    rules: Mapping[str, tuple[Condition, ...]]

    def apply(self, query: Query, auth_data: Mapping[str, Any] | None) -> Query:
        """The query restricted to what this user may see."""
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


class DeployedPermissions:
    """The rules that the application has deployed to the replica, read once until `forget`."""

    def __init__(self, app_id: str) -> None:
        self.table = f"{app_id}.permissions"
        # Set by `load`; None after `forget`, which the view syncer calls when the table may have changed.
        self._permissions: ReadPermissions | None = None

    def load(self, connection: sqlite3.Connection, schema: ReplicaSchema) -> ReadPermissions:
        """The rules in the replica; none at all if there is no document. Raises `SyncError` if it cannot be parsed."""
        if self._permissions is None:
            self._permissions = self._read(connection, schema)
        return self._permissions

    def _read(self, connection: sqlite3.Connection, schema: ReplicaSchema) -> ReadPermissions:
        if self.table not in schema.tables:
            return ReadPermissions({})
        row = connection.execute(f"SELECT permissions FROM {quoted(self.table)}").fetchone()
        return parse_permissions(None if row is None or row[0] is None else orjson.loads(row[0]))

    def forget(self) -> None:
        """Read the rules again the next time."""
        self._permissions = None
