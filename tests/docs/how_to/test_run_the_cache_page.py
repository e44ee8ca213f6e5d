"""The page about the cache names every setting there is, with its default."""

from __future__ import annotations

from pathlib import Path

from reference_cache.config import CacheConfig, settings
from reference_cache.sync_server.metrics import CacheMetrics
from reference_cache.sync_server.outbox import BEHIND_SECONDS, STUCK_SECONDS
from reference_cache.sync_server.pages import Pages

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "run-the-cache.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


def test_every_setting_is_on_the_page_with_its_default() -> None:
    for setting in settings():
        variable, default = setting.metadata["variable"], setting.default
        row = next((row for row in ROWS if f"`{variable}`" in row), None)
        assert row is not None, variable
        if isinstance(default, int | float) and not isinstance(default, bool) and default:
            assert f"{default:g}" in row or str(default) in row, variable


def test_the_page_names_no_setting_that_is_none() -> None:
    known = {setting.metadata["variable"] for setting in settings()}
    named = {word.strip("`") for row in ROWS for word in row.split("|")[1].split() if "_" in word}
    assert named <= known


def test_the_page_tells_how_long_a_slow_client_is_kept() -> None:
    assert f"after {STUCK_SECONDS:g} seconds" in PAGE
    assert f"longer than {BEHIND_SECONDS:g} seconds" in PAGE


def test_every_page_beside_the_socket_is_listed() -> None:
    pages = Pages(CacheMetrics(), None, lambda: True, dict)
    listed = [word.strip("`") for row in ROWS for word in row.split("|")[1].split() if word.startswith("`/")]
    assert len(listed) == 6
    assert all(pages.answer(path, None, is_local=True) is not None for path in listed)


def test_client_records_are_where_the_page_says() -> None:
    config = CacheConfig(upstream_db="ws://x")
    assert config.cvr_file.name == f"{config.replica_file.name}-cvr"
