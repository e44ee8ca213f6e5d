"""What the endpoint asks of the pipeline."""

from pathlib import Path

from changesource_sdk.changelog.requests import FileRequests
from changesource_sdk.changelog.store import SnapshotRequest


def test_the_highest_request_stands_until_a_snapshot_answers_it(tmp_path: Path) -> None:
    assert FileRequests(tmp_path).pending_snapshot() is None
    FileRequests(tmp_path).ask_snapshot("0c", "first")
    FileRequests(tmp_path).ask_snapshot("0b", "lower")
    FileRequests(tmp_path).ask_snapshot("0d", "higher")
    assert FileRequests(tmp_path).pending_snapshot() == SnapshotRequest("0d", "higher")
    FileRequests(tmp_path).answer_snapshot("0d")
    assert FileRequests(tmp_path).pending_snapshot() is not None
    FileRequests(tmp_path).answer_snapshot("0e")
    assert FileRequests(tmp_path).pending_snapshot() is None


def test_a_watermark_that_is_none_asks_for_any_snapshot(tmp_path: Path) -> None:
    FileRequests(tmp_path).ask_snapshot("NOT A WATERMARK", "malformed")
    assert FileRequests(tmp_path).pending_snapshot() == SnapshotRequest("00", "malformed")


def test_a_half_written_request_is_no_request(tmp_path: Path) -> None:
    FileRequests(tmp_path).ask_snapshot("0c", "r")
    (tmp_path / "requests" / "snapshot.json").write_text('{"above": "0c"')
    assert FileRequests(tmp_path).pending_snapshot() is None


def test_a_prune_request_is_taken_once(tmp_path: Path) -> None:
    assert FileRequests(tmp_path).take_prune() is None
    FileRequests(tmp_path).ask_prune("0c")
    assert FileRequests(tmp_path).take_prune() == "0c"
    assert FileRequests(tmp_path).take_prune() is None
    FileRequests(tmp_path).ask_prune("nonsense!")
    assert FileRequests(tmp_path).take_prune() is None
