"""The plan graph of one query level: connections, joins and fans, and what they cost in a flip pattern.

`planner.build` fixes the structure. Only join kinds, fan-in kinds, limits and constraints change, and all of them are
set again for each pattern (`planner`). `constrain` is called from the end of the graph back to the connections, then
`estimate` in the same order. A *path* has one number per fan-in on the way: it distinguishes the branches of unions
through which a connection is fetched separately.

The estimates follow the official planner formula by formula, also where a formula is debatable: the golden tests
compare its decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from protocol.sync.ast import Condition, Exists, Ordering
from reference_cache.zql.planner.cost import (
    Constraint,
    CostModel,
    Fanout,
    TableCost,
    any_match,
    divide,
    merge,
    round_up,
    smaller,
)

Path: TypeAlias = tuple[int, ...]

PARENTS_PER_FETCH = 256
"""A flipped join fetches parents with IN lists of this many keys."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a node costs along a path.

    `scan` are the rows read until the limit is reached, `rows` those of the output if no consumer stops early, `cost`
    that of all nodes before it, and `selectivity` the part of the rows that passes the filters.
    """

    startup: float
    scan: float
    cost: float
    rows: float
    selectivity: float
    limit: float | None
    fanout: Fanout


class PlanNode(Protocol):
    """A node of the graph, as the node after it uses it."""

    @property
    def name(self) -> str:
        """A label for reports."""
        ...

    def constrain(self, path: Path, constraint: Constraint | None) -> None:
        """Set the columns that are pinned when the node is fetched along `path`."""
        ...

    def estimate(self, downstream: float, path: Path) -> Estimate:
        """Returns the cost along `path`; `downstream` is the fraction of rows that the nodes after it let through."""
        ...

    def unlimit(self) -> None:
        """Remove the limit, because a flipped join reads all rows."""
        ...


class PlannerConnection:
    """One use of a table. Its selectivity is constant; limit and constraints belong to the pattern being tried."""

    def __init__(
        self,
        table: str,
        ordering: Ordering,
        filters: Condition | None,
        model: CostModel,
        *,
        limit: int | None,
        is_root: bool = False,
        base: Constraint | None = None,
    ) -> None:
        self.name = table
        # Of the pattern being tried: None once a flipped join reads everything (`unlimit`), restored by `reset`.
        self.limit: float | None = limit
        # Columns that joins pin, by path; written by `constrain` for each pattern, emptied by `reset`.
        self.constraints: dict[Path, Constraint | None] = {}
        self._ordering, self._filters, self._model = ordering, filters, model
        self._first_limit, self._is_root, self._base = limit, is_root, base
        # Cache for the present pattern, by path; emptied whenever a constraint changes.
        self._estimates: dict[Path, Estimate] = {}
        # Cache for all patterns: what the model says, by constraint. Never emptied.
        self._costs: dict[Constraint | None, TableCost] = {}
        self.selectivity = self._selectivity()

    def _selectivity(self) -> float:
        if self.limit is None or self._filters is None:
            return 1
        unfiltered = self._model(self.name, self._ordering, None, None).rows
        return self._cost(None).rows / unfiltered if unfiltered > 0 else 1

    def _cost(self, constraint: Constraint | None) -> TableCost:
        # The model may query a database, and hundreds of patterns need the same few costs.
        if constraint not in self._costs:
            self._costs[constraint] = self._model(self.name, self._ordering, self._filters, constraint)
        return self._costs[constraint]

    def reset(self) -> None:
        self.limit = self._first_limit
        self.constraints.clear()
        self._estimates.clear()

    def constrain(self, path: Path, constraint: Constraint | None) -> None:
        self.constraints[path] = constraint
        self._estimates.clear()

    def unlimit(self) -> None:
        if not self._is_root:
            self.limit = None

    def estimate(self, downstream: float, path: Path) -> Estimate:
        # The first caller's `downstream` counts for the path, as in the official planner.
        if path not in self._estimates:
            self._estimates[path] = self._estimate(downstream, path)
        return self._estimates[path]

    def _estimate(self, downstream: float, path: Path) -> Estimate:
        estimate = self._cost(merge(self._base, self.constraints.get(path)))
        scan = estimate.rows if self.limit is None else smaller(estimate.rows, divide(self.limit, downstream))
        return Estimate(estimate.startup, scan, 0, estimate.rows, self.selectivity, self.limit, estimate.fanout)


class PlannerJoin:
    """One EXISTS or NOT EXISTS. `flipped` means child first; the planner changes it only if `flippable`."""

    def __init__(self, parent: PlanNode, child: PlanNode, condition: Exists) -> None:
        self.parent, self.child = parent, child
        # The node after this one; set once, by `build`.
        self.output: PlanNode | None = None
        self.op = condition.op
        self.flippable = condition.op == "EXISTS" and condition.flip is None
        self._first_flipped = condition.op == "EXISTS" and condition.flip is True
        # Of the pattern being tried; written by the planner, restored by `reset`.
        self.flipped = self._first_flipped
        correlation = condition.related.correlation
        self.parent_columns: Constraint = tuple(dict.fromkeys(correlation.parent_field))
        self.child_columns: Constraint = tuple(dict.fromkeys(correlation.child_field))

    @property
    def name(self) -> str:
        return f"{self.parent.name} ⋈ {self.child.name}"

    def reset(self) -> None:
        self.flipped = self._first_flipped

    def unlimit(self) -> None:
        self.parent.unlimit()

    def constrain(self, path: Path, constraint: Constraint | None) -> None:
        if self.flipped:
            self.child.constrain(path, self._translated(constraint))
            self.parent.constrain(path, merge(constraint, self.parent_columns))
        else:
            self.child.constrain(path, self.child_columns)
            self.parent.constrain(path, constraint)

    def _translated(self, constraint: Constraint | None) -> Constraint | None:
        pairs = dict(zip(self.parent_columns, self.child_columns, strict=False))
        return tuple(pairs[column] for column in constraint or () if column in pairs) or None

    def estimate(self, downstream: float, path: Path) -> Estimate:
        child = self.child.estimate(1, path)
        matched = any_match(child.selectivity, child.fanout(self.child_columns))
        parent = self.parent.estimate(downstream if self.flipped else matched * downstream, path)
        return self._flipped(parent, child, downstream) if self.flipped else self._semi(parent, child, downstream)

    def _semi(self, parent: Estimate, child: Estimate, downstream: float) -> Estimate:
        return Estimate(
            startup=parent.startup,
            scan=_limited(parent.rows, parent.limit, downstream),
            cost=parent.cost + parent.scan * (child.startup + child.cost + child.scan),
            rows=parent.rows * child.selectivity,
            selectivity=child.selectivity * parent.selectivity,
            limit=parent.limit,
            fanout=parent.fanout,
        )

    def _flipped(self, parent: Estimate, child: Estimate, downstream: float) -> Estimate:
        fetches = round_up(child.scan / PARENTS_PER_FETCH)
        rows = parent.rows * child.rows
        return Estimate(
            startup=child.startup,
            scan=_limited(rows, parent.limit, downstream),
            cost=child.cost + fetches * parent.startup + child.scan * (parent.cost + parent.scan),
            rows=rows,
            selectivity=parent.selectivity * child.selectivity,
            limit=parent.limit,
            fanout=parent.fanout,
        )


def _limited(rows: float, limit: float | None, downstream: float) -> float:
    if limit is None:
        return rows
    return smaller(rows, 0 if downstream == 0 else limit / downstream)


class FanOut:
    """Where the branches of an OR begin; `outputs` has the first node of each branch and also its last."""

    name = "fan-out"

    def __init__(self, source: PlanNode) -> None:
        self.source = source
        # Filled by `build`.
        self.outputs: list[PlanNode] = []

    def unlimit(self) -> None:
        self.source.unlimit()

    def constrain(self, path: Path, constraint: Constraint | None) -> None:
        self.source.constrain(path, constraint)

    def estimate(self, downstream: float, path: Path) -> Estimate:
        return self.source.estimate(downstream, path)


class FanIn:
    """Where the branches of an OR end: one fetch for all branches, or one per branch while it is a `union`."""

    def __init__(self, branches: list[PlanNode]) -> None:
        self.branches = branches
        # Of the pattern being tried; set by the planner, cleared by `reset`.
        self.union = False

    @property
    def name(self) -> str:
        return "union fan-in" if self.union else "fan-in"

    def reset(self) -> None:
        self.union = False

    def unlimit(self) -> None:
        for branch in self.branches:
            branch.unlimit()

    def constrain(self, path: Path, constraint: Constraint | None) -> None:
        for branch, branch_path in self._paths(path):
            branch.constrain(branch_path, constraint)

    def _paths(self, path: Path) -> Iterator[tuple[PlanNode, Path]]:
        for i, branch in enumerate(self.branches):
            yield branch, (i if self.union else 0, *path)

    def estimate(self, downstream: float, path: Path) -> Estimate:
        estimates = [branch.estimate(downstream, branch_path) for branch, branch_path in self._paths(path)]
        miss = 1.0
        for each in estimates:
            miss *= 1 - each.selectivity
        together = sum if self.union else _largest
        return Estimate(
            startup=together(each.startup for each in estimates),
            scan=together(each.scan for each in estimates),
            cost=together(each.cost for each in estimates),
            rows=together(each.rows for each in estimates),
            selectivity=1 - miss,
            limit=estimates[-1].limit,
            fanout=estimates[-1].fanout,
        )


def _largest(values: Iterator[float]) -> float:
    """The maximum, ignoring NaN and negative values."""
    largest: float = 0
    for value in values:
        if value > largest:
            largest = value
    return largest


@dataclass(slots=True)
class PlanGraph:
    """All nodes of one level in order of creation; `end` is the last node, where constraints and estimates start."""

    end: PlanNode
    connections: list[PlannerConnection] = field(default_factory=list)
    joins: list[PlannerJoin] = field(default_factory=list)
    fan_outs: list[FanOut] = field(default_factory=list)
    fan_ins: list[FanIn] = field(default_factory=list)

    def reset(self) -> None:
        """Undo the current pattern."""
        nodes: list[PlannerConnection | PlannerJoin | FanIn] = [*self.connections, *self.joins, *self.fan_ins]
        for node in nodes:
            node.reset()
