"""Stage files."""

import os
from pathlib import Path

from changesource_sdk.changelog.coordination.reports import Reports
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.errors import AdapterError
from changesource_sdk.observe.stages import BEAT_S, Stage


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_stage(tmp_path: Path) -> tuple[Stage, Clock]:
    clock = Clock()
    StateDirectory(tmp_path).create()
    return Stage(Reports(tmp_path / "stages"), "pipeline", clock), clock


def read_stages(state: Path) -> dict[str, dict[str, object]]:
    return Reports(state / "stages").all()


def test_counts_add_up_and_the_rest_is_replaced(tmp_path: Path) -> None:
    stage, clock = a_stage(tmp_path)
    stage.update(state="tailing", position=1, watermark="0a", transactions=1, changes=2)
    clock.now += 1
    stage.update(position=[2], watermark="0b", transactions=2, changes=3)
    report = read_stages(tmp_path)["pipeline"]
    assert (report["transactions"], report["changes"], report["position"], report["watermark"]) == (3, 5, [2], "0b")
    assert report["moved_ms"] == report["updated_ms"] == 1_001_000.0


def test_frequent_updates_are_thinned_out_but_a_change_of_state_is_not(tmp_path: Path) -> None:
    stage, _ = a_stage(tmp_path)
    stage.update(state="tailing")
    stage.update(rows=5)
    assert read_stages(tmp_path)["pipeline"]["rows"] == 0
    stage.update(state="stopped")
    assert read_stages(tmp_path)["pipeline"]["rows"] == 5


def test_a_beat_shows_life_without_movement(tmp_path: Path) -> None:
    stage, clock = a_stage(tmp_path)
    stage.update(state="tailing", watermark="0a")
    clock.now += BEAT_S
    stage.beat()
    report = read_stages(tmp_path)["pipeline"]
    assert (report["moved_ms"], report["updated_ms"]) == (1_000_000.0, 1_005_000.0)


def test_an_error_stays_until_recovery(tmp_path: Path) -> None:
    stage, _ = a_stage(tmp_path)
    stage.failed(AdapterError("adapter-failed", "no route", "changes()", "check the network"))
    report = read_stages(tmp_path)["pipeline"]
    assert report["error"] == {
        "code": "adapter-failed",
        "message": "no route",
        "where": "changes()",
        "fix": "check the network",
    }
    assert (report["state"], report["restarts"]) == ("backing-off", 1)
    stage.recovered()
    assert read_stages(tmp_path)["pipeline"]["error"] is None


def test_a_snapshot_counts_its_rows_from_zero(tmp_path: Path) -> None:
    stage, _ = a_stage(tmp_path)
    stage.update(rows=7, done=1, total=1)
    stage.start("snapshot", 4)
    stage.update(rows=2, done=1)
    stage.flush()
    report = read_stages(tmp_path)["pipeline"]
    assert (report["state"], report["rows"], report["done"], report["total"]) == ("snapshot", 2, 1, 4)


def test_an_error_is_told_even_where_no_new_file_can_be_made(tmp_path: Path) -> None:
    stage, _ = a_stage(tmp_path)
    stage.update(state="tailing", watermark="0a" * 50)
    (tmp_path / "stages" / f".pipeline.json.{os.getpid()}").mkdir()
    stage.failed(AdapterError("disk-full", "no room", "log.sqlite", "free some"))
    report = read_stages(tmp_path)["pipeline"]
    assert report["state"] == "backing-off"
    assert isinstance(report["error"], dict)
    assert report["error"]["code"] == "disk-full"


def test_a_report_that_cannot_be_written_at_all_does_not_stop_the_stage(tmp_path: Path) -> None:
    stage = Stage(Reports(tmp_path / "nowhere"), "pipeline")
    stage.update(state="tailing")
    assert stage.report.state == "tailing"
    assert read_stages(tmp_path / "nowhere") == {}
