"""From a query to a pipeline: which operators, in which order, on which sources.

`build` expects a query that is bound (no static parameters), whose names are the sources' names, and whose orderings
are complete (`ordering.complete_query`); if a planner is used, it has set `flip` already. One level of the query
becomes, from the source upwards:

    source connection -> Skip (start) -> Join per unflipped EXISTS -> filters and flipped joins (where)
                      -> Take or Cap (limit) -> Join per related

Results never depend on `flip`: it chooses between testing each parent, and finding parents by their children. A `flip`
on NOT EXISTS is ignored, and so is the limit of a flipped EXISTS (all of its children are read anyway).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from protocol.sync.ast import And, Condition, CorrelatedSubquery, Exists, Or, Query, exists_conditions, has_subquery
from reference_cache.zql.ivm.operator import Columns, Input, StartPosition
from reference_cache.zql.ivm.operators.cap import Cap
from reference_cache.zql.ivm.operators.exists import ExistsStage, shared_key
from reference_cache.zql.ivm.operators.fan import AnyBranch
from reference_cache.zql.ivm.operators.filter import AllOf, Filter, FilterPipeline, FilterStage
from reference_cache.zql.ivm.operators.flipped_join import FlippedJoin
from reference_cache.zql.ivm.operators.join import Join
from reference_cache.zql.ivm.operators.skip import Skip
from reference_cache.zql.ivm.operators.take import Take
from reference_cache.zql.ivm.operators.union import UnionFanIn, UnionFanOut
from reference_cache.zql.ivm.routing import Under
from reference_cache.zql.ivm.source import Connection, Source
from reference_cache.zql.ordering import join_key
from reference_cache.zql.predicate import ALWAYS, NEVER, compile_predicate
from reference_cache.zql.schema import TableSchema

EXISTS_LIMIT = 3
PERMISSIONS_EXISTS_LIMIT = 1
"""Children that are kept for one EXISTS of a query, and of a permission; the same as in the official engine."""

SourceOf = Callable[[str], Source]
Wrap = Callable[[Input, str], Input]


class BuildError(ValueError):
    """A query that cannot be evaluated; says which part."""

    code = "cannot-build-query"


@dataclass(frozen=True, slots=True)
class Host:
    """What a pipeline is built on: the sources, and a hook around every operator.

    `ordered` is False where rows are only counted: tables are then read in order only as far as limits depend on it.
    """

    source_of: SourceOf
    ordered: bool = True
    wrap: Wrap = lambda operator, label: operator


def build(query: Query, host: Host, opened: list[Connection] | None = None) -> Input:
    """The pipeline of a query, not yet connected to an output. Raises `BuildError`, and then leaves nothing behind.

    `opened` gets the pipeline's connections, in the order of their creation.
    """
    opened = [] if opened is None else opened
    try:
        return _Level(host, query, opened, under=None, below_exists=False).build()
    except BaseException:
        for connection in reversed(opened):
            connection.destroy()
        raise


class _Level:
    """One level of a query while its operators are put together. `opened` collects the connections of all levels."""

    def __init__(
        self, host: Host, query: Query, opened: list[Connection], *, under: Under | None, below_exists: bool
    ) -> None:
        self._host = host
        self._opened = opened
        self._query = replace(query, where=_with_unique_aliases(query.where))
        self._under = under
        self._partition: Columns = under.child_columns if under else ()
        conditions = list(exists_conditions(self._query.where))
        self._unflipped = [condition for condition in conditions if not _is_flipped(condition)]
        self._has_flips = len(self._unflipped) < len(conditions)
        self._capped = below_exists and not self._has_flips
        self._source = host.source_of(query.table)
        self._check(conditions)
        self._required = _conjuncts(self._query.where)

    @property
    def _table(self) -> TableSchema:
        return self._source.table

    def _check(self, conditions: list[Exists]) -> None:
        for condition in conditions:
            child = condition.related.subquery
            if not _is_flipped(condition) and (child.start is not None or child.related):
                raise BuildError(
                    f"the subquery {child.alias!r} of an EXISTS on table {self._query.table!r} "
                    "has start or related; both are meaningless there, leave them out"
                )

    def build(self) -> Input:
        query = self._query
        ordering = query.order_by if self._needs_order() else None
        connection = self._source.connect(ordering, query.where, self._split_columns(), self._under)
        self._opened.append(connection)
        # The route of this level's connection, which joins and limits refine; set once, here.
        self._route = connection.route
        end = self._wrap(connection, f"source {query.table}")
        if query.start is not None:
            bound = StartPosition(self._table.row(query.start.row), inclusive=not query.start.exclusive)
            end = self._wrap(Skip(end, bound), "skip")
        for condition in self._unflipped:
            end = self._exists_join(end, condition)
        if query.where is not None and not connection.fully_applied:
            end = self._where(end, _without_applied(query.where))
        if query.limit is not None:
            end = self._limit(end, query.limit, connection)
        for related in _last_by_alias(query.related):
            end = self._join(end, related, related.subquery, below_exists=False)
        return end

    def _needs_order(self) -> bool:
        """Whether the order matters: to the receiver, a limit, a start, or a union that merges its branches."""
        if self._capped:
            return False
        query = self._query
        return self._host.ordered or query.limit is not None or query.start is not None or self._has_flips

    def _split_columns(self) -> set[str]:
        columns = set(self._partition)
        for condition in exists_conditions(self._query.where):
            columns.update(condition.related.correlation.parent_field)
        for related in self._query.related:
            columns.update(related.correlation.parent_field)
        return columns

    def _wrap(self, operator: Input, label: str) -> Input:
        return self._host.wrap(operator, label)

    def _limit(self, input: Input, limit: int, connection: Connection) -> Input:
        if self._capped:
            return self._wrap(Cap(input, limit, self._partition, self._route.watch), f"cap {limit}")
        take = Take(input, limit, self._partition, self._route.watch)
        if has_subquery(self._query.where):
            # Testing a row costs lookups in other tables, and most rows are far behind the window.
            connection.is_ignored = take.ignores
        return self._wrap(take, f"take {limit}")

    def _child(self, related: CorrelatedSubquery, query: Query, *, below_exists: bool) -> _Level:
        columns = related.correlation
        under = Under(self._route, columns.parent_field, columns.child_field, limited=query.limit is not None)
        return _Level(self._host, query, self._opened, under=under, below_exists=below_exists)

    def _exists_join(self, input: Input, condition: Exists) -> Input:
        related = condition.related
        limit = PERMISSIONS_EXISTS_LIMIT if related.system == "permissions" else EXISTS_LIMIT
        return self._join(input, related, replace(related.subquery, limit=limit), below_exists=True)

    def _join(self, input: Input, related: CorrelatedSubquery, query: Query, *, below_exists: bool) -> Input:
        child = self._child(related, query, below_exists=below_exists).build()
        join = Join(
            input,
            child,
            related.correlation,
            related.alias,
            hidden=bool(related.hidden),
            system=related.system or "client",
        )
        return self._wrap(join, f"join {related.alias}")

    def _where(self, input: Input, where: Condition) -> Input:
        """Apply a condition; parts with flipped EXISTS change the stream, the rest only filters it."""
        if not _has_flip(where):
            return self._wrap(FilterPipeline(input, self._stage(where)), "filter")
        if isinstance(where, Exists):
            return self._flipped_join(input, where)
        if isinstance(where, And):
            return self._where_all(input, where)
        assert isinstance(where, Or)
        return self._where_any(input, where)

    def _where_all(self, input: Input, where: And) -> Input:
        plain = tuple(member for member in where.conditions if not _has_flip(member))
        end = self._where(input, And(plain)) if plain else input
        for member in where.conditions:
            if _has_flip(member):
                end = self._where(end, member)
        return end

    def _where_any(self, input: Input, where: Or) -> Input:
        fan_out = UnionFanOut(input)
        plain = tuple(member for member in where.conditions if not _has_flip(member))
        branches = [self._where(fan_out.branch(), Or(plain))] if plain else []
        branches += [self._where(fan_out.branch(), member) for member in where.conditions if _has_flip(member)]
        return self._wrap(UnionFanIn(fan_out, branches), "union")

    def _flipped_join(self, input: Input, condition: Exists) -> Input:
        related = condition.related
        child = self._child(related, replace(related.subquery, limit=None), below_exists=False)
        join = FlippedJoin(
            input,
            child.build(),
            related.correlation,
            related.alias,
            hidden=bool(related.hidden),
            system=related.system or "client",
        )
        if condition in self._required:
            self._route.need(child._route, related.correlation.parent_field, related.correlation.child_field)
        return self._wrap(join, f"flipped join {related.alias}")

    def _stage(self, condition: Condition) -> FilterStage:
        if not has_subquery(condition):
            return Filter(compile_predicate(condition, self._table))
        if isinstance(condition, Exists):
            return self._exists_stage(condition)
        if isinstance(condition, And):
            return AllOf([self._stage(member) for member in condition.conditions])
        assert isinstance(condition, Or)
        plain = tuple(member for member in condition.conditions if not has_subquery(member))
        branches = [self._stage(member) for member in condition.conditions if has_subquery(member)]
        return AnyBranch([*branches, self._stage(Or(plain))] if plain else branches)

    def _exists_stage(self, condition: Exists) -> FilterStage:
        negated = condition.op == "NOT EXISTS"
        if condition.related.subquery.limit == 0:
            return Filter(compile_predicate(ALWAYS if negated else NEVER, self._table))
        columns = condition.related.correlation.parent_field
        key_of = shared_key(join_key(columns, self._table), columns, self._table.primary_key)
        return ExistsStage(condition.related.alias, negated=negated, key_of=key_of)


def _conjuncts(where: Condition | None) -> list[Condition]:
    """The conditions that must all hold: the members of a top AND, or the only one."""
    if isinstance(where, And):
        return [each for member in where.conditions for each in _conjuncts(member)]
    return [] if where is None else [where]


def _is_flipped(condition: Exists) -> bool:
    return condition.flip is True and condition.op == "EXISTS" and condition.related.subquery.limit != 0


def _has_flip(condition: Condition) -> bool:
    return any(_is_flipped(each) for each in exists_conditions(condition))


def _without_applied(where: Condition) -> Condition:
    """The condition without what the source has applied to every row already: the plain members of a top AND."""
    if not isinstance(where, And):
        return where
    return And(tuple(member for member in where.conditions if has_subquery(member)))


def _last_by_alias(related: tuple[CorrelatedSubquery, ...]) -> list[CorrelatedSubquery]:
    """Of several relationships with one alias, the last one, in the order of the first."""
    by_alias: dict[str, CorrelatedSubquery] = {}
    for each in related:
        by_alias[each.alias] = each
    return list(by_alias.values())


def _with_unique_aliases(where: Condition | None) -> Condition | None:
    """The condition with a number added to each EXISTS alias: two on one relationship must have different names."""
    if not isinstance(where, And | Or):
        return where
    return _numbered(where, (str(number) for number in range(1 << 30)))


def _numbered(condition: Condition, numbers: Iterator[str]) -> Condition:
    if isinstance(condition, And | Or):
        return replace(condition, conditions=tuple(_numbered(member, numbers) for member in condition.conditions))
    if not isinstance(condition, Exists):
        return condition
    related = condition.related
    subquery = replace(related.subquery, alias=f"{related.alias}_{next(numbers)}")
    return replace(condition, related=replace(related, subquery=subquery))
