"""Builds the plan graph of one query level.

The members of an AND are chained. An OR becomes a fan-out, one branch per member that has subqueries, and a fan-in.
Comparisons add no node: the cost model sees them as filters of their table. A condition's child graph is built before
its own join; that fixes the order of joins, and so which join each bit of a flip pattern means.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from protocol.sync.ast import And, Condition, Exists, Or, Query, Simple, has_subquery
from reference_cache.zql.planner.cost import Constraint, CostModel
from reference_cache.zql.planner.graph import FanIn, FanOut, PlanGraph, PlannerConnection, PlannerJoin, PlanNode


def build_graph(query: Query, model: CostModel, base: Constraint | None = None) -> PlanGraph:
    """Returns the graph of one level; `base` are the columns that the join with the level above pins, if any."""
    connection = PlannerConnection(
        query.table, query.order_by, query.where, model, limit=query.limit, is_root=True, base=base
    )
    graph = PlanGraph(connection, [connection])
    graph.end = _Builder(graph, model).follow(query.where, connection)
    return graph


@dataclass(frozen=True, slots=True)
class _Builder:
    """Adds the nodes of conditions to one graph."""

    graph: PlanGraph
    model: CostModel

    def follow(self, condition: Condition | None, source: PlanNode) -> PlanNode:
        """Adds the condition after `source`; returns the last node, which is `source` if there is no subquery."""
        match condition:
            case None | Simple():
                return source
            case And():
                for member in condition.conditions:
                    source = self.follow(member, source)
                return source
            case Or():
                return self._either(condition, source)
            case Exists():
                return self._join(condition, source)

    def _either(self, condition: Or, source: PlanNode) -> PlanNode:
        members = [member for member in condition.conditions if has_subquery(member)]
        if not members:
            return source
        fan_out = FanOut(source)
        self.graph.fan_outs.append(fan_out)
        _wire(source, fan_out)
        branches: list[PlanNode] = []
        for member in members:
            branch = self.follow(member, fan_out)
            branches.append(branch)
            fan_out.outputs.append(branch)
        fan_in = FanIn(branches)
        self.graph.fan_ins.append(fan_in)
        for branch in branches:
            _wire(branch, fan_in)
        return fan_in

    def _join(self, condition: Exists, source: PlanNode) -> PlanNode:
        subquery = condition.related.subquery
        # An EXISTS check stops at the first row. NOT EXISTS is costed as a full read, as the official planner does.
        limit = 1 if condition.op == "EXISTS" else None
        connection = PlannerConnection(subquery.table, subquery.order_by, subquery.where, self.model, limit=limit)
        self.graph.connections.append(connection)
        child = self.follow(subquery.where, connection)
        join = PlannerJoin(source, child, condition)
        self.graph.joins.append(join)
        _wire(source, join)
        _wire(child, join)
        return join


def _wire(source: PlanNode, target: PlanNode) -> None:
    if isinstance(source, PlannerJoin):
        source.output = target
    elif isinstance(source, FanOut):
        source.outputs.append(target)


def union_candidates(fan_out: FanOut) -> tuple[FanIn | None, list[PlannerJoin]]:
    """The fan-in that becomes a union when one of the returned joins is flipped.

    The walk is breadth first and takes the last fan-in it meets, as the official planner does; with nested ORs that
    may be an inner one.
    """
    fan_in: FanIn | None = None
    joins: list[PlannerJoin] = []
    seen: set[int] = set()
    queue: deque[PlanNode] = deque(fan_out.outputs)
    while queue:
        node = queue.popleft()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, PlannerJoin):
            joins.append(node)
            if node.output is not None:
                queue.append(node.output)
        elif isinstance(node, FanOut):
            queue.extend(node.outputs)
        elif isinstance(node, FanIn):
            fan_in = node
    return fan_in, joins
