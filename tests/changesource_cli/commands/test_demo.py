"""The demo, as a new user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.changesource_cli.conftest import run


def test_the_demo_shows_a_snapshot_and_live_changes_and_ends(tmp_path: Path) -> None:
    ended = run("demo", "--runner", "inline", "--seconds", "4", "--keep", "kept", "--json", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [event["event"] for event in events][:4] == ["store", "pipeline", "endpoint", "snapshot"]
    snapshot, end = events[3], events[-1]
    assert snapshot["rows"] == 4001
    changes = [event for event in events if event["event"] == "change"]
    assert end == {"event": "end", "changes": len(changes), "p50_ms": end["p50_ms"], "p99_ms": end["p99_ms"]}
    assert changes
    assert all(0 < change["latency_ms"] < 60_000 for change in changes)
    assert (tmp_path / "kept" / "tracker.db").exists()


@pytest.mark.parametrize("arguments", [["--runner", "abacus"], ["--seconds", "0"]])
def test_a_wrong_option_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    ended = run("demo", *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
