"""How a query runs: the plan, what every operator did during one hydration, the rows it reads and those it syncs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocol.sync.ast import Query
from reference_cache.zql.engine.build import Host, build
from reference_cache.zql.engine.meter import Meters
from reference_cache.zql.engine.reads import Reads
from reference_cache.zql.engine.row_changes import RowChange, RowChanges
from reference_cache.zql.ivm.change import YIELD
from reference_cache.zql.ivm.operator import EVERYTHING, Input
from reference_cache.zql.planner.planner import Plan
from reference_cache.zql.planner.report import as_mermaid, as_text


@dataclass(frozen=True, slots=True)
class Explanation:
    """One hydration, observed. `synced` has a row as often as it is referenced; `plan` is None without a cost model."""

    query: Query
    plan: Plan | None
    meters: Meters
    reads: Reads
    synced: Sequence[RowChange]

    @property
    def rows_synced(self) -> Counter[str]:
        """References by table."""
        return Counter(change.table for change in self.synced)

    def __str__(self) -> str:
        synced = ", ".join(f"{count} of {table}" for table, count in sorted(self.rows_synced.items()))
        parts = [] if self.plan is None else [as_text(self.plan)]
        return "\n".join([*parts, str(self.meters), f"rows synced: {synced or 'none'}"])

    def picture(self) -> str | None:
        """The plan as a Mermaid flow chart; None without a cost model."""
        return None if self.plan is None else as_mermaid(self.plan)


def explain(query: Query, host: Host, plan: Plan | None = None, *, keep_rows: bool = False) -> Explanation:
    """Run a prepared query once on the host's sources, watching every operator, and let go of it."""
    meters, reads = Meters(), Reads(keep_rows=keep_rows)

    def watched(operator: Input, label: str) -> Input:
        return meters.wrap(reads.wrap(operator, label), label)

    input = build(query, replace(host, wrap=watched))
    rows = RowChanges("", input.schema)
    synced: list[RowChange] = []
    try:
        for node in input.fetch(EVERYTHING):
            if node is not YIELD:
                rows.expand_node(node, "add", synced)
    finally:
        input.destroy()
    return Explanation(query, plan, meters, reads, synced)
