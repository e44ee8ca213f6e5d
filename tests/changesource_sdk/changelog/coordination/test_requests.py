"""What endpoints ask of the pipeline, in every store."""

from pathlib import Path

from changesource_sdk.changelog.coordination.requests import SnapshotRequest
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest


def test_the_highest_request_stands_until_a_snapshot_answers_it(log: LogUnderTest) -> None:
    assert log.store.requests.pending_snapshot() is None
    log.store.requests.ask_snapshot("0c", "first")
    log.store.requests.ask_snapshot("0b", "lower")
    log.store.requests.ask_snapshot("0d", "higher")
    assert log.store.requests.pending_snapshot() == SnapshotRequest("0d", "higher")
    log.store.requests.answer_snapshot("0d")
    assert log.store.requests.pending_snapshot() is not None
    log.store.requests.answer_snapshot("0e")
    assert log.store.requests.pending_snapshot() is None


def test_a_watermark_that_is_none_asks_for_any_snapshot(log: LogUnderTest) -> None:
    log.store.requests.ask_snapshot("NOT A WATERMARK", "malformed")
    assert log.store.requests.pending_snapshot() == SnapshotRequest("00", "malformed")


def test_a_half_written_request_is_no_request(tmp_path: Path) -> None:
    SqliteLogStore(tmp_path).requests.ask_snapshot("0c", "r")
    (tmp_path / "requests" / "snapshot.json").write_text('{"above": "0c"')
    assert SqliteLogStore(tmp_path).requests.pending_snapshot() is None


def test_a_prune_request_is_taken_once(log: LogUnderTest) -> None:
    assert log.store.requests.take_prune() is None
    log.store.requests.ask_prune("0c")
    assert log.store.requests.take_prune() == "0c"
    assert log.store.requests.take_prune() is None
    log.store.requests.ask_prune("nonsense!")
    assert log.store.requests.take_prune() is None
