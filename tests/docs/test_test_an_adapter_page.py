"""The page on testing adapters: its snippets run, with the README's adapter, and it explains every case."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from changesource_sdk.testing.conformance import CAPABILITIES, CASES, Harness, conformance
from changesource_sdk.testing.conformance.harness import SHORTHANDS
from changesource_sdk.testing.faults import Faults
from tests.conformance.postgres_harness import PostgresHarness

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "test-an-adapter.md").read_text()
HARNESS, FROM_A_FIXTURE, WITHOUT_PYTEST, FAULTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(ADAPTER,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Harness]:
    """The page's harness over the README's adapter, both importable as an author's would be."""
    (tmp_path / "todo_file.py").write_text(ADAPTER)
    (tmp_path / "todo_page_harness.py").write_text(HARNESS)
    monkeypatch.syspath_prepend(str(tmp_path))
    found: type[Harness] = importlib.import_module("todo_page_harness").TodoHarness
    return found


def test_the_adapter_in_the_readme_keeps_every_rule(harness: type[Harness], capsys: pytest.CaptureFixture[str]) -> None:
    exec(WITHOUT_PYTEST, {"TodoHarness": harness})
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if " broken " in line] == []
    counts = Counter(line.split(" ", 1)[1].startswith("kept") for line in told.splitlines())
    assert counts.total() == len(CASES)
    assert f"conformance of TodoHarness: {counts[True]} kept, 0 broken, {counts[False]} not applicable" in PAGE


def test_the_example_of_a_fault_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(todo_file=ADAPTER, test_faults=FAULTS)
    pytester.runpytest("-p", "changesource_sdk.testing.plugin", "-p", "no:asyncio").assert_outcomes(passed=1)


def test_the_harness_that_comes_from_a_fixture_is_a_test_class() -> None:
    names = {"conformance": conformance, "PostgresHarness": PostgresHarness, "pytest": pytest}
    exec(FROM_A_FIXTURE, names)
    assert hasattr(names["TestPostgres"], "test_keeps_the_contract")


def test_every_case_has_its_section() -> None:
    assert re.findall(r"^### (.*)$", PAGE, re.MULTILINE) == [case.name for case in CASES]


def test_every_capability_is_explained() -> None:
    table = PAGE[PAGE.index("## What a store lacks") : PAGE.index("## Without pytest")]
    assert set(re.findall(r"`([a-z ]+)`", table)) >= {*CAPABILITIES, *SHORTHANDS}


def test_every_fault_is_explained() -> None:
    methods = {name for name in vars(Faults) if not name.startswith("_")} - {"settle"}
    assert set(re.findall(r"`faults\.([a-z_]+)\(", PAGE)) == methods
