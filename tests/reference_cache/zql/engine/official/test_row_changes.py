"""Ours against the recordings: the same row changes, transaction by transaction.

A recording stops where the official engine's reference counts no longer are those of its own fresh hydration.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from protocol.sync.ast_json import parse
from tests.golden.compare import Emission, Holder, emission, same, same_effect
from tests.golden.engine_cases import Case, Setting
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind

RECORDINGS = Path(__file__).parent / "recordings.jsonl.gz"


def recordings() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(RECORDINGS.read_bytes()).splitlines()]


def agreement(recorded: dict[str, Any], source: SourceKind) -> str:
    """`same` row changes in the same order, the same `effect`, or what differs."""
    run = Case({"schema": recorded["schema"], "rows": recorded["rows"]}, Setting(source))
    official = recorded["official"]
    held = Holder(run.schema)
    ours: list[Emission] = [emission(change, run.schema) for change in run.rows("q", parse(recorded["ast"]))]
    pairs = [(ours, official["initial"])]
    for step, expected in zip(recorded["steps"], official["steps"], strict=False):
        pairs.append(([emission(change, run.schema) for change in run.push(step)], expected))
    found = "same"
    for number, (emitted, expected) in enumerate(pairs):
        wanted: list[Emission] = [(op, table, row) for op, table, row in expected]
        if not same([list(each) for each in emitted], [list(each) for each in wanted]):
            found = "effect"
            if not same_effect(held.effect(emitted), held.effect(wanted)):
                return f"seed {recorded['seed']}, step {number}: {emitted}, expected {wanted}"
        held.receive(emitted)
    return found


@pytest.mark.parametrize("source", SOURCE_KINDS)
def test_row_changes_are_the_official_ones_on_random_worlds(source: SourceKind) -> None:
    found = [agreement(recorded, source) for recorded in recordings()]
    assert [each for each in found if each not in ("same", "effect")] == []
    assert found.count("same") >= len(found) * 0.98


def test_the_recordings_are_worth_comparing() -> None:
    cases = recordings()
    whole = [case for case in cases if len(case["official"]["steps"]) == len(case["steps"])]
    emitted = sum(len(step) for case in cases for step in case["official"]["steps"])
    assert len(cases) >= 200
    assert len(whole) >= len(cases) * 0.9
    assert emitted > 1000
