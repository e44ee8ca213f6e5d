"""Our engine over a workload: the same measurements, in the same form, as `official.mjs` takes."""

from __future__ import annotations

import gc
import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.ivm.workload import COLUMNS
from protocol.sync.ast_json import parse
from reference_cache.ivm.change import YIELD, SourceChange, add, edit, remove
from reference_cache.ivm.engine import Engine
from reference_cache.ivm.memory_table import memory_source
from reference_cache.ivm.source import Source
from reference_cache.query.schema import Schema, TableSchema, schema, table

Record = dict[str, Any]
SCHEMA = schema([table(name, columns) for name, columns in COLUMNS.items()], {})


def measure(workload: Path, source: str, pipelines: list[str], repeat: int) -> list[Record]:
    """One record per pipeline and repeat."""
    document = json.loads((workload / "workload.json").read_text())
    return [_measure(document, workload, source, pipeline) for pipeline in pipelines for _ in range(repeat)]


def _measure(document: Record, workload: Path, source: str, pipeline: str) -> Record:
    wanted = document["pipelines"][pipeline]
    changes = [(change["table"], _change(SCHEMA, change)) for change in wanted["changes"]]
    with OPENERS[source](document, workload) as open_source:
        engine = Engine(SCHEMA, open_source)
        for name in COLUMNS:
            engine.source(name)
        gc.collect()
        gc.freeze()
        begun = time.perf_counter()
        hydrated = sum(1 for change in engine.add_query(pipeline, parse(wanted["ast"])) if change is not YIELD)
        ready = time.perf_counter()
        counts = Counter({"add": 0, "remove": 0, "edit": 0})
        for name, change in changes:
            counts.update([row_change.op for row_change in engine.push(name, change)])
        done = time.perf_counter()
    gc.unfreeze()
    return {
        "engine": "changesource",
        "source": source,
        "pipeline": pipeline,
        "hydrationSeconds": ready - begun,
        "hydratedRows": hydrated,
        "changes": len(changes),
        "changesPerSecond": len(changes) / (done - ready),
        "rowChanges": dict(counts),
        "residentMegabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _change(schema: Schema, change: Record) -> SourceChange:
    table = schema.tables[change["table"]]
    row = table.row(change["row"])
    if change["op"] == "edit":
        return edit(row, table.row(change["oldRow"]))
    return add(row) if change["op"] == "add" else remove(row)


OpenSource = Callable[[TableSchema], Source]


@contextmanager
def _memory(document: Record, workload: Path) -> Iterator[OpenSource]:
    yield lambda table: memory_source(table, [table.row(row) for row in document["rows"][table.name]])


OPENERS = {"memory": _memory}
