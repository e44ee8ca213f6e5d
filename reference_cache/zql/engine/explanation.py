"""How a query runs: the plan, what every operator did during one hydration, the rows it reads and those it syncs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from protocol.sync.ast import Query
from reference_cache.zql.engine.build import Host, build
from reference_cache.zql.engine.meter import Meters
from reference_cache.zql.engine.reads import Reads
from reference_cache.zql.engine.row_references import RowReferences
from reference_cache.zql.ivm.operator import EVERYTHING, Input
from reference_cache.zql.planner.planner import QueryPlan
from reference_cache.zql.planner.report import as_mermaid, as_text
from reference_cache.zql.schema import Row


@dataclass(frozen=True, slots=True)
class Explanation:
    """One hydration, observed. `synced` has the rows by table, each as often as it is referenced.

    `plan` is None without a cost model.
    """

    query: Query
    plan: QueryPlan | None
    meters: Meters
    reads: Reads
    synced: Mapping[str, Sequence[Row]]

    @property
    def rows_synced(self) -> Counter[str]:
        """References by table."""
        return Counter({table: len(rows) for table, rows in self.synced.items()})

    def __str__(self) -> str:
        synced = ", ".join(f"{count} of {table}" for table, count in sorted(self.rows_synced.items()))
        parts = [] if self.plan is None else [as_text(self.plan)]
        return "\n".join([*parts, str(self.meters), f"rows synced: {synced or 'none'}"])

    def picture(self) -> str | None:
        """The plan as a Mermaid flow chart; None without a cost model."""
        return None if self.plan is None else as_mermaid(self.plan)


class _SyncedRows:
    """A `RowReceiver` that collects the rows of one hydration."""

    def __init__(self) -> None:
        # Filled by `hydrated` while the explained query runs.
        self.by_table: dict[str, list[Row]] = defaultdict(list)

    def hydrated(self, table: str, row: Row) -> None:
        self.by_table[table].append(row)

    def added(self, table: str, row: Row) -> None:
        raise AssertionError("a query that is explained follows no changes")

    removed = edited = added


def explain(query: Query, host: Host, plan: QueryPlan | None = None, *, keep_rows: bool = False) -> Explanation:
    """Run a prepared query once on the host's sources, watching every operator, and destroy its pipeline."""
    meters, reads, synced = Meters(), Reads(keep_rows=keep_rows), _SyncedRows()

    def watched(operator: Input, label: str) -> Input:
        return meters.wrap(reads.wrap(operator, label), label)

    input = build(query, replace(host, wrap=watched))
    try:
        for _ in RowReferences(input.schema, synced).hydrate(input.fetch(EVERYTHING)):
            pass
    finally:
        input.destroy()
    return Explanation(query, plan, meters, reads, synced.by_table)
