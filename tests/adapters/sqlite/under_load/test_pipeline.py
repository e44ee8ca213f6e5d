"""The adapter in the real pipeline process, killed again and again while another process writes."""

import json
import os
import random
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.sqlite.log import SqliteLog
from changesource_sdk.pipeline.settings import PipelineSettings, command_line
from changesource_sdk.pipeline.source import SourceSpec
from protocol.framing import unframe
from tests.adapters.sqlite.under_load import transfers
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[4]
KILLS = int(os.environ.get("CHANGESOURCE_SQLITE_KILLS", "3"))


class Replica:
    """Folds the log as a consumer would: by the messages alone."""

    def __init__(self, state: Path) -> None:
        self.log = SqliteLog(StateDirectory(state))
        self.rows: dict[str, dict[int, dict[str, object]]] = {}
        self.watermark = ""

    def start(self) -> None:
        (record,) = self.log.snapshots()
        for block in snapshots.blocks(record.directory, snapshots.read_manifest(record.directory)):
            self.apply(block)
        self.watermark = record.watermark

    def has_all(self) -> bool:
        """Apply what the log has, checking each state; whether the writer's last row was among it."""
        for transaction in self.log.read_after(self.watermark, 1_000_000):
            assert transaction.watermark > self.watermark
            for chunk in transaction.chunks():
                self.apply(chunk)
            self.watermark = transaction.watermark
            assert self.total == transfers.TOTAL
        return bool(self.rows["finished"])

    def apply(self, frames: bytes) -> None:
        for payload in unframe(frames):
            kind, change, *_ = json.loads(payload)
            if kind == "data":
                self.apply_change(change)

    def apply_change(self, change: dict[str, Any]) -> None:
        match change["tag"]:
            case "create-table":
                self.rows[change["spec"]["name"]] = {}
            case "insert" | "update":
                row = change["new"]
                self.rows[change["relation"]["name"]][row["id"]] = row
            case "delete":
                self.rows[change["relation"]["name"]].pop(change["key"]["id"], None)
            case "add-column":
                for row in self.rows[change["table"]["name"]].values():
                    row[change["column"]["name"]] = "none"
            case tag:
                assert tag == "create-index"

    @property
    def total(self) -> int:
        return sum(int(str(row["balance"])) for row in self.rows["accounts"].values())


def start_pipeline(path: str, state: Path) -> subprocess.Popen[bytes]:
    command = command_line(PipelineSettings(SourceSpec("adapters.sqlite:SqliteAdapter", {"path": path})), state)
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_any_moment_nothing_is_lost_doubled_or_torn(path: str, tmp_path: Path, seed: int) -> None:
    state, rng = tmp_path / "state", random.Random(seed)
    transfers.create(path)
    reader = SqliteLog(StateDirectory(state))
    pipeline = start_pipeline(path, state)
    try:
        with transfers.Writer(path, seed, pause_s=0.005) as writer:
            for _ in range(KILLS):
                reached = reader.state().transactions + rng.randrange(20)
                until(lambda: reader.state().transactions >= reached, f"transaction {reached}")  # noqa: B023
                pipeline.kill()
                pipeline.wait()
                pipeline = start_pipeline(path, state)
            writer.finish()
        replica = Replica(state)
        until(lambda: reader.state().generation == 1, "a snapshot")
        replica.start()
        until(replica.has_all, "the last row of the writer")
    finally:
        pipeline.kill()
        pipeline.wait()
    with sqlite3.connect(path) as db:
        db.row_factory = sqlite3.Row
        assert replica.rows["accounts"] == {row["id"]: dict(row) for row in db.execute("SELECT * FROM accounts")}
    assert reader.state().generation == 1
