"""The example on docs/explanation/replica.md shows the changes of a replica, and the page's bounds are the code's."""

from pathlib import Path
from typing import Any

import pytest

from reference_cache.replica.log_retention import MAX_LOGGED
from service_kit.backoff import LONGEST_RECONNECT_S
from tests.docs.fences import blocks, execute
from tests.reference_cache.replica.conftest import Filled
from tests.reference_cache.sources import insert, snapshot

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "replica.md").read_text()


def test_the_example_shows_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = blocks("docs/explanation/replica.md", "python")
    names: dict[str, Any] = {}
    execute(source, names)
    made = Filled(tmp_path / "replica.db", snapshot("01"))
    made.commit("02", insert(1, "one"))
    names["show"](tmp_path / "replica.db", "01")
    assert capsys.readouterr().out.startswith("02 item Add(")


def test_the_bounds_on_the_page_are_current() -> None:
    assert ("half a million" in PAGE) == (MAX_LOGGED == 500_000)
    assert ("grow to ten seconds" in PAGE) == (LONGEST_RECONNECT_S == 10)
