"""The engine benchmark on a small workload: every store, and the official engine, do the same work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ivm import many_queries, ours
from benchmarks.ivm.official import find_node
from benchmarks.ivm.stores import KINDS, MemoryStores
from benchmarks.ivm.workload import Size, World, pipelines, tables_of, write
from tests.support.tools import node_modules

SMALL = Size(issues=200, comments=500, users=20, projects=3, changes=300)


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workload")
    write(folder, SMALL)
    return folder


def work_done(records: list[dict[str, Any]]) -> dict[str, tuple[int, dict[str, int]]]:
    return {record["pipeline"]: (record["hydratedRows"], record["rowChanges"]) for record in records}


def test_a_seed_names_one_workload() -> None:
    assert World(SMALL).rows == World(SMALL).rows
    assert list(World(SMALL).changes({"issue"}, 50)) == list(World(SMALL).changes({"issue"}, 50))


def test_changes_touch_only_the_tables_a_query_reads() -> None:
    for ast in pipelines().values():
        tables = tables_of(ast)
        assert {change["table"] for change in World(SMALL).changes(tables, 200)} <= tables


def test_every_store_does_the_same_work(workload: Path) -> None:
    names = list(pipelines())
    done = {kind: work_done(ours.measure(workload, kind, names, 1, 7)) for kind in KINDS}
    assert done["sqlite"] == done["memory"]
    assert done["sqlite-written"] == done["memory"]
    assert all(rows > 0 for rows, _ in done["memory"].values())


def test_many_queries_are_measured_in_every_shape(workload: Path) -> None:
    document = json.loads((workload / "workload.json").read_text())
    for shape in many_queries.SHAPES:
        record = many_queries.measure(MemoryStores(document, workload), shape, 20)
        assert record["rows"] > 0
        assert record["microsecondsPerChange"] > 0


def test_one_command_prints_every_pipeline_and_writes_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    size = ["--issues", "50", "--comments", "100", "--users", "10", "--changes", "20", "--repeat", "1"]
    command = [sys.executable, "-m", "benchmarks.ivm", "--no-official", "--json", str(report), *size]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert all(name in printed for name in pipelines())
    assert json.loads(report.read_text())["settings"]["issues"] == 50


@pytest.mark.e2e
@pytest.mark.parametrize("source", ["sqlite", "memory"])
def test_the_official_engine_does_the_same_work(workload: Path, source: str) -> None:
    node = find_node(node_modules())
    assert node is not None
    names = list(pipelines())
    theirs = work_done(node.measure(workload, source, names, 1))
    assert work_done(ours.measure(workload, source, names, 1, 10)) == theirs
