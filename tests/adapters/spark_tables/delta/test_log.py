"""Commits of a Delta table, read from its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.spark_tables.delta.log import DeltaLog, read_commit
from tests.support.workloads.delta_lake import Lake, people


def commit(*actions: dict[str, object]) -> bytes:
    return "\n".join(map(json.dumps, actions)).encode()


INFO = {"commitInfo": {"timestamp": 5}}
MOVED = {"add": {"path": "x", "dataChange": True}}


@pytest.mark.parametrize(
    ("actions", "has_rows", "has_feed", "has_vectors"),
    [
        ([INFO], False, False, False),
        ([INFO, MOVED], True, False, False),
        ([INFO, {"add": {"path": "x", "dataChange": False}}], False, False, False),
        ([INFO, MOVED, {"cdc": {"path": "y"}}], True, True, False),
        (
            [INFO, {"remove": {"path": "x", "dataChange": True, "deletionVector": {"storageType": "u"}}}],
            True,
            False,
            True,
        ),
    ],
    ids=["nothing", "rows", "compaction", "feed", "vectors"],
)
def test_a_commit_tells_what_kind_of_change_it_is(
    actions: list[dict[str, object]], has_rows: bool, has_feed: bool, has_vectors: bool
) -> None:
    found = read_commit(3, commit(*actions))
    assert (found.has_rows, found.has_feed, found.has_vectors) == (has_rows, has_feed, has_vectors)
    assert (found.version, found.time_ms, found.metadata) == (3, 5.0, None)


def test_the_time_of_the_commit_itself_counts_before_the_writers() -> None:
    assert read_commit(1, commit({"commitInfo": {"timestamp": 5, "inCommitTimestamp": 7}})).time_ms == 7.0


def test_commits_of_a_table_are_found_by_their_version(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t", people((1, "a")))
    log = DeltaLog(str(lake.path), {})
    first = log.read(0)
    assert first is not None
    assert first.metadata is not None
    assert first.has_rows
    assert log.read(1) is None
    assert log.mark(1) is None
    lake.delete("id = 1")
    second = log.read(1)
    assert second is not None
    assert second.has_feed
    assert second.time_ms >= first.time_ms
    assert log.mark(1) == log.mark(1) != log.mark(0)
