"""The page on testing adapters: its harness passes with the README's adapter, and it explains every case."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from changesource_sdk.testing.conformance import CAPABILITIES, CASES, Harness, run_suite
from changesource_sdk.testing.conformance.harness import SHORTHANDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "test-an-adapter.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Harness]:
    """The page's harness over the README's adapter, both importable as an author's would be."""
    (adapter,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "todo_file.py").write_text(adapter)
    (tmp_path / "todo_page_harness.py").write_text(PYTHON[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    found: type[Harness] = importlib.import_module("todo_page_harness").TodoHarness
    return found


def test_the_adapter_in_the_readme_keeps_every_rule(harness: type[Harness]) -> None:
    verdicts = list(run_suite(harness))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    counts = Counter(verdict.outcome for verdict in verdicts)
    said = f"conformance of TodoHarness: {counts['kept']} kept, 0 broken, {counts['not applicable']} not applicable"
    assert said in PAGE


def test_every_case_has_its_section() -> None:
    assert re.findall(r"^### (.*)$", PAGE, re.MULTILINE) == [case.name for case in CASES]


def test_every_capability_is_explained() -> None:
    table = PAGE[PAGE.index("## What a store lacks") : PAGE.index("## Without pytest")]
    assert set(re.findall(r"`([a-z ]+)`", table)) >= {*CAPABILITIES, *SHORTHANDS}


def test_every_fault_method_is_explained() -> None:
    from changesource_sdk.testing.faults import Faults

    methods = {name for name in vars(Faults) if not name.startswith("_")} - {"settle"}
    assert set(re.findall(r"`faults\.([a-z_]+)\(", PAGE)) == methods
