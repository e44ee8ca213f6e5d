"""`python -m benchmarks.ivm.many_queries`: what one change costs when many live queries differ in one constant.

Each query pins another person: the owner of issues (`plain`; `related` adds their comments, `limited` three comments
each) or the author of a comment that must exist (`exists`, evaluated child first).  With routing the cost of a change
depends on the queries it concerns, not on how many there are: the last column compares with the fewest.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.ivm import ours
from benchmarks.ivm.stores import KINDS, Stores
from benchmarks.ivm.workload import Size, World, write
from protocol.sync.ast_json import parse
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.ivm.change import SourceChange, add, edit, remove
from reference_cache.zql.schema import TableSchema

OWNERS = 10_000
SHAPES = ("plain", "related", "limited", "exists")
NEWEST = {"orderBy": [["modified", "desc"]], "limit": 50}


def query(shape: str, person: int) -> dict[str, Any]:
    """A query about one person's issues."""
    comments: dict[str, Any] = {"table": "comment", "alias": "comments"}
    related = {"correlation": {"parentField": ["id"], "childField": ["issueId"]}, "subquery": comments}
    if shape == "exists":
        comments["where"] = _is("authorId", person)
        condition = {"type": "correlatedSubquery", "op": "EXISTS", "flip": True, "related": related}
        return {"table": "issue", "where": condition, **NEWEST}
    ast: dict[str, Any] = {"table": "issue", "where": _is("ownerId", person)}
    if shape == "plain":
        return ast
    comments["orderBy"] = [["created", "asc"]]
    if shape == "limited":
        comments["limit"] = 3
    return {**ast, "related": [related], **NEWEST}


def _is(column: str, person: int) -> dict[str, Any]:
    left = {"type": "column", "name": column}
    return {"type": "simple", "op": "=", "left": left, "right": {"type": "literal", "value": f"u{person}"}}


def changes(count: int) -> list[tuple[str, SourceChange]]:
    """Edits, adds and removes of issues and comments of the owners that every run has."""
    made: list[tuple[str, SourceChange]] = []
    for number in range(count):
        issue = (f"new{number}", "title", True, 1, 10_000_000 + number, f"u{number % 10}", "p1")
        comment = (f"new{number}", f"new{number}", "u1", 10_000_000 + number, "body")
        made += [
            ("issue", add(issue)),
            ("comment", add(comment)),
            ("issue", edit((*issue[:1], "renamed", *issue[2:]), issue)),
            ("comment", remove(comment)),
            ("issue", remove((*issue[:1], "renamed", *issue[2:]))),
        ]
    return made


def measure(stores: Stores, shape: str, queries: int) -> dict[str, Any]:
    """Hydrate so many queries, then push the changes, each a transaction."""
    engine = Engine(ours.SCHEMA, stores.open_source)
    for table in ("issue", "comment"):
        engine.source(table)
    gc.collect()
    gc.freeze()
    before = _resident_megabytes()
    begun = time.perf_counter()
    rows = ours.RowCounts()
    for number in range(queries):
        deque(engine.add_query(parse(query(shape, number)), rows).hydrate(), maxlen=0)
    hydrated = time.perf_counter()
    grown = _resident_megabytes() - before
    costs = [_cost(stores, engine, ours.SCHEMA.tables[table], change) for table, change in changes(400)]
    gc.unfreeze()
    stores.close()
    return {
        "shape": shape,
        "queries": queries,
        "rows": rows.counts["hydrated"],
        "hydrationSeconds": hydrated - begun,
        "megabytesGrown": grown,
        "microsecondsPerChange": statistics.mean(costs) * 1e6,
    }


def _resident_megabytes() -> float:
    """What this process occupies now; where the system does not say, its peak."""
    statistics_file = Path("/proc/self/statm")
    if statistics_file.exists():
        return int(statistics_file.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _cost(stores: Stores, engine: Engine, table: TableSchema, change: SourceChange) -> float:
    stores.replicate([(table, change)])
    start = time.perf_counter()
    engine.push(table.name, change)
    stores.finish()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ivm.many_queries", description=__doc__)
    parser.add_argument("--sources", type=lambda text: text.split(","), default=["sqlite", "memory"])
    parser.add_argument("--queries", type=lambda text: [int(n) for n in text.split(",")], default=[10, 1_000, 10_000])
    parser.add_argument("--json", type=Path, help="write the records to this file")
    options = parser.parse_args()
    size = Size(users=OWNERS, changes=0)
    records = []
    print(f"{'source':8}{'shape':10}{'queries':>8}{'hydration s':>13}{'MB grown':>10}{'us/change':>11}{'ratio':>7}")
    with tempfile.TemporaryDirectory(prefix="ivm-benchmark-") as folder:
        write(Path(folder), size)
        document = {"rows": {table: list(rows.values()) for table, rows in World(size).rows.items()}}
        for source in options.sources:
            for shape in SHAPES:
                fewest = 0.0
                for count in options.queries:
                    record = measure(KINDS[source](document, Path(folder)), shape, count) | {"source": source}
                    fewest = fewest or record["microsecondsPerChange"]
                    records.append(record | {"ratio": record["microsecondsPerChange"] / fewest})
                    _print(records[-1])
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n")


def _print(record: dict[str, Any]) -> None:
    print(
        f"{record['source']:8}{record['shape']:10}{record['queries']:>8}{record['hydrationSeconds']:>13.2f}"
        f"{record['megabytesGrown']:>10.0f}{record['microsecondsPerChange']:>11.1f}{record['ratio']:>6.2f}x"
    )


if __name__ == "__main__":
    main()
