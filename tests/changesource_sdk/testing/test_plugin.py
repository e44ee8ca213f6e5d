"""The plugin and the one-line suite, as an author's own pytest run shows them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from changesource_sdk.testing import plugin
from changesource_sdk.testing.conformance import CASES

pytest_plugins = ["pytester"]

OPTIONS = ("-p", "changesource_sdk.testing.plugin", "-p", "no:asyncio")

AUTHORS_TEST = """
from changesource_sdk.testing.conformance import CASES, conformance
from tests.changesource_sdk.testing.conformance.planted_adapters import NoKey
from tests.changesource_sdk.testing.conformance.workshop import WorkshopHarness

class RightHarness(WorkshopHarness):
    lacks = ("writes",)

class WrongHarness(RightHarness):
    adapter = NoKey

CHOSEN = [case for case in CASES if case.name in ("tables", "picklable", "killed")]
TestRight = conformance(RightHarness, CHOSEN)
TestWrong = conformance(WrongHarness, CHOSEN)
"""


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    return pytester.runpytest(*OPTIONS, "-ra", *arguments)


def test_one_line_gives_a_test_for_every_case(pytester: pytest.Pytester) -> None:
    source = AUTHORS_TEST.replace("conformance(RightHarness, CHOSEN)", "conformance(RightHarness)")
    collected = run(pytester, source, "--collect-only", "-q", "-k", "TestRight")
    collected.stdout.fnmatch_lines([f"*::TestRight::test_keeps_the_contract[[]{case.name}]" for case in CASES])


def test_a_broken_rule_is_told_without_a_trace(pytester: pytest.Pytester) -> None:
    result = run(pytester, AUTHORS_TEST)
    result.assert_outcomes(passed=3, failed=1, skipped=2)
    result.stdout.fnmatch_lines(["tables: broken: table item has no key*", "rule: tables()*", "see docs/*#tables"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_what_does_not_apply_is_reported_with_the_declared_word(pytester: pytest.Pytester) -> None:
    result = run(pytester, AUTHORS_TEST)
    result.stdout.fnmatch_lines(
        [
            "conformance of RightHarness: 2 kept, 0 broken, 1 not applicable",
            "conformance of WrongHarness: 1 kept, 1 broken, 1 not applicable",
            "SKIPPED*not applicable: declared: lacks writes",
        ]
    )


def test_a_test_whose_fault_never_fires_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGESOURCE_SEED", "77")
    result = run(
        pytester,
        """
        def test_fires(faults):
            assert faults.plan("drop", within=1).fires("here")

        def test_never_fires(faults):
            faults.plan("delay")
        """,
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*FaultNeverFired: planned but never fired: delay (seed 77)*"])


def test_the_plugin_is_declared_under_its_own_name() -> None:
    # pytest would refuse the module under two names where a test also asks for it with -p or in its conftest.
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert declared["project"]["entry-points"]["pytest11"] == {plugin.__name__: plugin.__name__}
