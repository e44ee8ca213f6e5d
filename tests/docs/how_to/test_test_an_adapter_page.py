"""The page on testing adapters: its snippets run, with the README's adapter, and it explains every case."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from changesource_sdk.testing.conformance import CAPABILITIES, CASES, Harness, run_case
from changesource_sdk.testing.conformance.harness import SHORTHANDS
from changesource_sdk.testing.faults import Faults
from tests.changesource_sdk.testing.conformance.planted_adapters import LosesKeyChange
from tests.changesource_sdk.testing.conformance.workshop import harness_of
from tests.docs.fences import as_module, block, execute, ran
from tests.support.peers.postgres_server import PostgresServer

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "test-an-adapter.md").read_text()
WHERE = "docs/how-to/test-an-adapter.md"

IMPORTS = """import pytest
from changesource_sdk.testing.conformance import conformance
from tests.conformance.postgres_harness import PostgresHarness

"""


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Harness]:
    """The page's harness over the README's adapter, both importable as an author's would be."""
    monkeypatch.syspath_prepend(str(tmp_path))
    as_module(adapter(), tmp_path / "todo_file.py")
    found: type[Harness] = as_module(block(WHERE, "# test_todo_file.py"), tmp_path / "todo_page_harness.py").TodoHarness
    return found


def adapter() -> str:
    return block("README.md", '"""A to-do list')


def test_the_adapter_in_the_readme_keeps_every_rule(harness: type[Harness], capsys: pytest.CaptureFixture[str]) -> None:
    execute(block(WHERE, "from changesource_sdk.testing.conformance import run_suite"), {"TodoHarness": harness})
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if " broken " in line] == []
    counts = Counter(line.split(" ", 1)[1].startswith("kept") for line in told.splitlines())
    assert counts.total() == len(CASES)
    assert f"conformance of TodoHarness: {counts[True]} kept, 0 broken, {counts[False]} not applicable" in PAGE


def test_the_example_of_a_fault_passes(pytester: pytest.Pytester) -> None:
    texts = {"todo_file": adapter(), "test_faults": block(WHERE, "from todo_file import TodoFile")}
    pytester.makepyfile(**texts)
    pytester.runpytest("-p", "changesource_sdk.testing.plugin", "-p", "no:asyncio").assert_outcomes(passed=1)
    ran("\n".join(texts.values()))


def test_the_harness_that_comes_from_a_fixture_is_used(
    pytester: pytest.Pytester, logical_postgres: PostgresServer
) -> None:
    class Servers:
        @pytest.fixture
        def postgres(self) -> PostgresServer:
            return logical_postgres

    from_a_fixture = block(WHERE, "class TestPostgres")
    pytester.makepyfile(test_fixture=IMPORTS + from_a_fixture)
    chosen = ("-k", "deletes or key-changes", "-p", "changesource_sdk.testing.plugin", "-p", "no:asyncio")
    done = pytester.runpytest_inprocess(*chosen, plugins=[Servers()])
    done.assert_outcomes(passed=2, deselected=len(CASES) - 2)
    ran(from_a_fixture)


def test_a_broken_rule_is_told_as_the_page_shows(tmp_path: Path) -> None:
    (case,) = [case for case in CASES if case.name == "key-changes"]
    told = str(run_case(harness_of(LosesKeyChange), case, tmp_path))
    assert told.split() == block(WHERE, "key-changes: broken").split()


def test_one_line_gives_a_test_class(pytester: pytest.Pytester) -> None:
    texts = {"todo_file": adapter(), "test_todo_file": block(WHERE, "# test_todo_file.py")}
    pytester.makepyfile(**texts)
    chosen = ("-k", "deletes", "-p", "changesource_sdk.testing.plugin", "-p", "no:asyncio")
    pytester.runpytest_inprocess(*chosen).assert_outcomes(passed=1, deselected=len(CASES) - 1)
    ran("\n".join(texts.values()))


def test_every_case_has_its_section() -> None:
    assert re.findall(r"^### (.*)$", PAGE, re.MULTILINE) == [case.name for case in CASES]


def test_every_capability_is_explained() -> None:
    table = PAGE[PAGE.index("## What a datastore lacks") : PAGE.index("## Without pytest")]
    assert set(re.findall(r"`([a-z ]+)`", table)) >= {*CAPABILITIES, *SHORTHANDS}


def test_every_fault_is_explained() -> None:
    methods = {name for name in vars(Faults) if not name.startswith("_")} - {"settle"}
    assert set(re.findall(r"`faults\.([a-z_]+)\(", PAGE)) == methods
