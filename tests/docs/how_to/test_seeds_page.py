"""The page about seeds, typed as it is printed: made on schedule and by hand, and fetched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from changesource_sdk.seed.layout import RELEASES
from tests.docs.fences import ROOT, block
from tests.support.reader import Reader
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore

PAGE = "docs/how-to/seeds.md"


@pytest.mark.timeout(240)
def test_the_commands_make_and_fetch_a_seed(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "shell")
    SqliteStore(reader.folder / "app.db", "CREATE TABLE item (id INTEGER PRIMARY KEY)", "INSERT INTO item VALUES (1)")
    with reader.serve(block(PAGE, "changesource serve sqlite")) as address:
        settings = {"ZERO_UPSTREAM_DB": f"ws://{address}/changes/v0/stream", "ZERO_REPLICA_FILE": "replica.db"}
        reader.environment |= settings
        until(lambda: list(reader.folder.glob("seeds/*/seed.json")), "the first seed", seconds=90)
        # Its process deletes the folder at the end; two may not work on one log.
        until(lambda: not (reader.folder / "state" / "seed.building").exists(), "the end of its process", seconds=30)
        assert "a seed with 1 rows" in reader.run(block(PAGE, "changesource seed --state"))
        fetch = block(PAGE, "changesource fetch-seed")
        assert "has 1 rows" in reader.run(fetch)
        assert "is there already" in reader.run(fetch)
    assert (reader.folder / "replica.db").exists()


def test_the_page_lists_codes_that_exist_and_the_known_releases() -> None:
    text = (ROOT / PAGE).read_text()
    sources = "".join(path.read_text() for path in (ROOT / "changesource_sdk").rglob("*.py"))
    named = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    codes = re.findall(r"`([a-z-]+)`", "".join(named))
    assert len(codes) >= 8
    assert [code for code in codes if f'"{code}"' not in sources] == []
    assert all(release in text for release in RELEASES)
