"""The fluent query builder: makes the same ASTs as the official builder.

    issues = Queries(schema).table("issue")
    issues.where("open", True).where_exists("labels", lambda q: q.where("name", "bug")).related("comments").limit(20)

A `QueryBuilder` is immutable; every method returns a new one. `ast` is the query, `format` the shape of its result.
Every method checks names and literals against the schema and raises `BuilderError`, so the traceback shows the line
with the mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, overload

from protocol.sync.ast import CorrelatedSubquery, Correlation, Direction, Exists, Query, Start, System
from protocol.sync.ast_json import AstError
from reference_cache.zql.format import Format
from reference_cache.zql.nearest import unknown
from reference_cache.zql.predicate import simplify
from reference_cache.zql.query.check import check_condition
from reference_cache.zql.query.expression import (
    UNSET,
    Expression,
    SubqueryChange,
    Value,
    cmp,
    conjunction,
    exists,
    resolve,
)
from reference_cache.zql.schema import Hop, Relationship, Row, Schema, TableSchema

SUBQUERY_PREFIX = "zsubq_"
HIDDEN_PREFIX = "zsubq_zhidden_"


class BuilderError(ValueError):
    """A query that is not valid: an unknown name, a wrong type, or a call that is not possible there."""

    code = "bad-query"


@dataclass(frozen=True, slots=True)
class Queries:
    """Makes queries on a schema. `system` is written into subqueries: `client`, or `permissions` for those of rules."""

    schema: Schema
    system: System = "client"

    def table(self, name: str) -> QueryBuilder:
        """A query for all rows of a table; raises `BuilderError` if the schema has no such table."""
        if name not in self.schema.tables:
            raise BuilderError(unknown("table", name, self.schema.tables))
        return QueryBuilder(self.schema, Query(name), Format(), self.system)


@dataclass(frozen=True, slots=True)
class QueryBuilder:
    """A query under construction, complete and valid after every step. Immutable."""

    schema: Schema = field(repr=False)
    ast: Query
    format: Format
    system: System = "client"
    junction: str | None = None

    @property
    def _table(self) -> TableSchema:
        return self.schema.tables[self.ast.table]

    @overload
    def where(self, column: str, op: str, value: Value, /) -> QueryBuilder: ...
    @overload
    def where(self, column: str, value: Value, /) -> QueryBuilder: ...
    @overload
    def where(self, expression: Expression, /) -> QueryBuilder: ...
    def where(self, first: str | Expression, second: Any = UNSET, third: Any = UNSET, /) -> QueryBuilder:
        """Keep rows that also satisfy the condition: column and value, column, operator and value, or an expression."""
        if isinstance(first, str):
            if second is UNSET:
                raise BuilderError(f"where({first!r}) needs a value, or an operator and a value")
            first = cmp(first, second, third)
        condition = resolve(first, self)
        try:
            check_condition(condition, self._table, self.schema)
        except AstError as error:
            raise BuilderError(f"where on {self.ast.table!r}: {error.reason}") from None
        if self.ast.where is not None:
            condition = conjunction([self.ast.where, condition])
        return replace(self, ast=replace(self.ast, where=simplify(condition)))

    def where_exists(
        self,
        relationship: str,
        change: SubqueryChange | None = None,
        *,
        flip: bool | None = None,
        scalar: bool | None = None,
    ) -> QueryBuilder:
        """Keep rows that have a related row; `change` gets the query of related rows and may restrict it.

        `flip` decides whether it is evaluated child first (None: the planner decides).
        """
        return self.where(exists(relationship, change, flip=flip, scalar=scalar))

    def related(self, relationship: str, change: SubqueryChange | None = None) -> QueryBuilder:
        """Return the related rows as well; `change` gets their query and may filter, order, limit or extend it."""
        if relationship.startswith(SUBQUERY_PREFIX):
            raise BuilderError(f"relationship names may not begin with {SUBQUERY_PREFIX!r}: {relationship!r}")
        hops = self._relationship(relationship)
        target = self._subquery(hops[-1], relationship, hops, change)
        entry = self._correlated(hops[-1], target.ast)
        if len(hops) == 2:
            through = Query(hops[0].table, alias=relationship, related=(entry,))
            entry = replace(self._correlated(hops[0], through), hidden=True)
        shape = replace(self.format, relationships={**self.format.relationships, relationship: target.format})
        return replace(self, ast=replace(self.ast, related=(*self.ast.related, entry)), format=shape)

    def exists(
        self, relationship: str, change: SubqueryChange | None, flip: bool | None, scalar: bool | None
    ) -> Exists:
        """The EXISTS condition for a relationship of this query's table."""
        hops = self._relationship(relationship)
        if len(hops) == 1:
            target = self._subquery(hops[0], SUBQUERY_PREFIX + relationship, hops, change)
            return Exists("EXISTS", self._correlated(hops[0], target.ast), flip, scalar)
        target = self._subquery(hops[1], HIDDEN_PREFIX + relationship, hops, change)
        inner = Exists("EXISTS", self._correlated(hops[1], target.ast), flip, scalar)
        through = Query(hops[0].table, alias=SUBQUERY_PREFIX + relationship, where=inner)
        return Exists("EXISTS", self._correlated(hops[0], through), flip)

    def order_by(self, column: str, direction: Direction = "asc") -> QueryBuilder:
        """Order by one more column, after those of earlier calls."""
        self._refuse_in_junction("order_by")
        if direction not in ("asc", "desc"):
            raise BuilderError(f"direction is 'asc' or 'desc', not {direction!r}")
        if self._column(column) == "json":
            raise BuilderError(f"order_by: {column!r} holds json, which has no order")
        return replace(self, ast=replace(self.ast, order_by=(*self.ast.order_by, (column, direction))))

    def start(self, row: Mapping[str, Any] | Row, *, inclusive: bool = False) -> QueryBuilder:
        """Begin after this row (or at it) in the query's order; columns left out count as null."""
        values = dict(row) if isinstance(row, Mapping) else self._table.named(row)
        for column in values:
            self._column(column)
        return replace(self, ast=replace(self.ast, start=Start(values, exclusive=not inclusive)))

    def limit(self, count: int) -> QueryBuilder:
        """At most this many rows."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise BuilderError(f"a limit is a whole number, zero or more, not {count!r}")
        self._refuse_in_junction("limit")
        return replace(self, ast=replace(self.ast, limit=count))

    def one(self) -> QueryBuilder:
        """The first row only, shown as a row instead of a list."""
        return replace(self, ast=replace(self.ast, limit=1), format=replace(self.format, singular=True))

    def _column(self, name: str) -> str:
        if name not in self._table.columns:
            raise BuilderError(f"table {self.ast.table!r}: {unknown('column', name, self._table.columns)}")
        return self._table.columns[name].type

    def _relationship(self, name: str) -> Relationship:
        named = self.schema.relationships.get(self.ast.table, {})
        if name not in named:
            raise BuilderError(f"table {self.ast.table!r}: {unknown('relationship', name, named)}")
        return named[name]

    def _subquery(self, hop: Hop, alias: str, hops: Relationship, change: SubqueryChange | None) -> QueryBuilder:
        # Behind a junction, order and limit would apply per junction row, which is not what their author means; the
        # official builder refuses them, too.
        junction = alias if len(hops) == 2 else None
        shape = Format(singular=hop.cardinality == "one")
        target = QueryBuilder(self.schema, Query(hop.table, alias=alias), shape, self.system, junction)
        return target if change is None else change(target)

    def _correlated(self, hop: Hop, subquery: Query) -> CorrelatedSubquery:
        return CorrelatedSubquery(Correlation(hop.source_field, hop.dest_field), subquery, system=self.system)

    def _refuse_in_junction(self, what: str) -> None:
        if self.junction is not None:
            raise BuilderError(f"{what} is not possible beyond a junction ({self.junction!r})")
