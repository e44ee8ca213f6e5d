"""The example on docs/explanation/shared-evaluation.md runs and prints what the page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from reference_cache.zql.ivm.routing import FEW_READERS
from tests.docs.fences import blocks, execute

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "shared-evaluation.md").read_text()


def test_the_example_prints_what_its_comment_says(capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = blocks("docs/explanation/shared-evaluation.md", "python")
    names: dict[str, Any] = {}
    execute(source, names)
    (expected,) = re.findall(r"print\(patches\)  # (.*)", source)
    assert capsys.readouterr().out.strip() == expected


def test_the_threshold_on_the_page_is_current() -> None:
    assert f"With more than {FEW_READERS} connections" in PAGE
