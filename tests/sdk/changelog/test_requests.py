"""What the endpoint asks of the pipeline."""

from pathlib import Path

from changesource_sdk.changelog.requests import (
    SnapshotRequest,
    answer_request,
    pending_request,
    request_prune,
    request_snapshot,
    take_prune,
)


def test_the_highest_request_stands_until_a_snapshot_answers_it(tmp_path: Path) -> None:
    assert pending_request(tmp_path) is None
    request_snapshot(tmp_path, "0c", "first")
    request_snapshot(tmp_path, "0b", "lower")
    request_snapshot(tmp_path, "0d", "higher")
    assert pending_request(tmp_path) == SnapshotRequest("0d", "higher")
    answer_request(tmp_path, "0d")
    assert pending_request(tmp_path) is not None
    answer_request(tmp_path, "0e")
    assert pending_request(tmp_path) is None


def test_a_watermark_that_is_none_asks_for_any_snapshot(tmp_path: Path) -> None:
    request_snapshot(tmp_path, "NOT A WATERMARK", "malformed")
    assert pending_request(tmp_path) == SnapshotRequest("00", "malformed")


def test_a_half_written_request_is_no_request(tmp_path: Path) -> None:
    request_snapshot(tmp_path, "0c", "r")
    (tmp_path / "requests" / "snapshot.json").write_text('{"above": "0c"')
    assert pending_request(tmp_path) is None


def test_a_prune_request_is_taken_once(tmp_path: Path) -> None:
    assert take_prune(tmp_path) is None
    request_prune(tmp_path, "0c")
    assert take_prune(tmp_path) == "0c"
    assert take_prune(tmp_path) is None
    request_prune(tmp_path, "nonsense!")
    assert take_prune(tmp_path) is None
