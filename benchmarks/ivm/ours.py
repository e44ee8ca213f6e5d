"""Our engine over a workload: the same measurements, in the same form, as `official.mjs` takes."""

from __future__ import annotations

import gc
import json
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.ivm.stores import KINDS, Stores, Transaction
from benchmarks.ivm.workload import COLUMNS
from protocol.sync.ast_json import parse
from reference_cache.ivm.change import YIELD, SourceChange, add, edit, remove
from reference_cache.ivm.engine import Engine
from reference_cache.query.schema import TableSchema, schema, table

Record = dict[str, Any]
SCHEMA = schema([table(name, columns) for name, columns in COLUMNS.items()], {})


def measure(
    workload: Path, source: str, pipelines: list[str], repeat: int, changes_per_transaction: int
) -> list[Record]:
    """One record per pipeline and repeat."""
    document = json.loads((workload / "workload.json").read_text())
    records = []
    for pipeline in pipelines:
        wanted = document["pipelines"][pipeline]
        changes = [(SCHEMA.tables[change["table"]], _change(change)) for change in wanted["changes"]]
        step = changes_per_transaction
        transactions = [changes[at : at + step] for at in range(0, len(changes), step)]
        for _ in range(repeat):
            stores = KINDS[source](document, workload)
            measured = _measure(stores, wanted["ast"], transactions)
            stores.close()
            records.append({"engine": "changesource", "source": source, "pipeline": pipeline, **measured})
    return records


def _measure(stores: Stores, ast: Record, transactions: list[Transaction]) -> Record:
    engine = Engine(SCHEMA, stores.open_source)
    for name in COLUMNS:
        engine.source(name)
    gc.collect()
    gc.freeze()
    begun = time.perf_counter()
    hydrated = sum(1 for change in engine.add_query("query", parse(ast)) if change is not YIELD)
    hydration = time.perf_counter() - begun
    counts: Counter[str] = Counter({"add": 0, "remove": 0, "edit": 0})
    spent = sum(_advance(stores, engine, transaction, counts) for transaction in transactions)
    gc.unfreeze()
    changes = sum(map(len, transactions))
    return {
        "hydrationSeconds": hydration,
        "hydratedRows": hydrated,
        "changes": changes,
        "changesPerSecond": changes / spent,
        "rowChanges": dict(counts),
        "residentMegabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _advance(stores: Stores, engine: Engine, transaction: Transaction, counts: Counter[str]) -> float:
    """Push one transaction; the seconds it took."""
    stores.replicate(transaction)
    begun = time.perf_counter()
    emitted = [engine.push(table.name, change) for table, change in transaction]
    stores.finish()
    spent = time.perf_counter() - begun
    for row_changes in emitted:
        counts.update([row_change.op for row_change in row_changes])
    return spent


def _change(change: Record) -> SourceChange:
    table: TableSchema = SCHEMA.tables[change["table"]]
    row = table.row(change["row"])
    if change["op"] == "edit":
        return edit(row, table.row(change["oldRow"]))
    return add(row) if change["op"] == "add" else remove(row)
