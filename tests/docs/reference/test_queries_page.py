"""The code on docs/reference/queries.md runs, top to bottom, and the page's figures are the tests' own."""

from pathlib import Path
from typing import Any

import pytest

from protocol.sync.ast_json import MAX_NESTING
from tests.docs.fences import blocks, execute
from tests.reference_cache.zql.official import QUERIES
from tests.reference_cache.zql.planner.statistics_database import QUESTIONS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "queries.md").read_text()


def test_every_example_on_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("docs/reference/queries.md", "python"):
        execute(block, names)
    printed = capsys.readouterr().out
    assert "issue: pattern" in printed
    assert "flowchart TD" in printed


def test_the_figures_on_the_page_are_current() -> None:
    assert f"compare {len(QUERIES)} queries" in PAGE
    assert f"more than {MAX_NESTING} groups" in PAGE
    assert f"On {len(QUESTIONS['questions'])} recorded questions" in PAGE
