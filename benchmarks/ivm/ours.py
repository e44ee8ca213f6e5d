"""Our engine over a workload: the same measurements, in the same form, as `official.mjs` takes."""

from __future__ import annotations

import gc
import json
import resource
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from benchmarks.ivm.stores import KINDS, Stores, Transaction
from benchmarks.ivm.workload import COLUMNS
from protocol.sync.ast_json import parse
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.ivm.change import SourceChange, add, edit, remove
from reference_cache.zql.schema import Row, TableSchema, schema, table

Record = dict[str, Any]
SCHEMA = schema([table(name, columns) for name, columns in COLUMNS.items()], {})


class RowCounts:
    """A `RowReceiver` that counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter({"hydrated": 0, "add": 0, "remove": 0, "edit": 0})

    def hydrated(self, table: str, row: Row) -> None:
        self.counts["hydrated"] += 1

    def added(self, table: str, row: Row) -> None:
        self.counts["add"] += 1

    def removed(self, table: str, row: Row) -> None:
        self.counts["remove"] += 1

    def edited(self, table: str, row: Row) -> None:
        self.counts["edit"] += 1


class Stopwatch:
    """Adds up the time spent inside `with` blocks: by the wall clock, and of this process alone."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def __enter__(self) -> None:
        self.seconds -= time.perf_counter()
        self.cpu_seconds -= time.process_time()

    def __exit__(self, *exception: object) -> None:
        self.cpu_seconds += time.process_time()
        self.seconds += time.perf_counter()


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
    hydrating, advancing = Stopwatch(), Stopwatch()
    with hydrating:
        rows = RowCounts()
        deque(engine.add_query(parse(ast), rows).hydrate(), maxlen=0)
    for transaction in transactions:
        stores.replicate(transaction)
        with advancing:
            for table, change in transaction:
                engine.push(table.name, change)
            stores.finish()
    with advancing:
        stores.settle()
    gc.unfreeze()
    changes = sum(map(len, transactions))
    return {
        "hydrationSeconds": hydrating.seconds,
        "hydrationCpuSeconds": hydrating.cpu_seconds,
        "hydratedRows": rows.counts.pop("hydrated"),
        "changes": changes,
        "changesPerSecond": changes / advancing.seconds,
        "changesPerCpuSecond": changes / advancing.cpu_seconds,
        "rowChanges": dict(rows.counts),
        "residentMegabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _change(change: Record) -> SourceChange:
    table: TableSchema = SCHEMA.tables[change["table"]]
    row = table.row(change["row"])
    if change["op"] == "edit":
        return edit(row, table.row(change["oldRow"]))
    return add(row) if change["op"] == "add" else remove(row)
