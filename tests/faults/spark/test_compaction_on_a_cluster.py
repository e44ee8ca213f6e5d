"""`changesource compact` as a Spark job on a cluster of several processes, beside a pipeline that goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.child_process import ChildProcess
from tests.support.fakes.raw_consumer import RawConsumer
from tests.support.peers.serving import Serving
from tests.support.peers.spark_serving import CLUSTER, EXECUTOR, SPARK_SECONDS, command_line, kill
from tests.support.tools import REPOSITORY
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore

ROWS = 20_000


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_log_is_compacted_on_a_cluster_though_an_executor_dies(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "app.db", "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    store.insert("item", [(number, "old") for number in range(ROWS)])
    state = tmp_path / "state"
    with Serving("sqlite", {"path": str(store.path)}, state) as endpoint:
        endpoint.start()
        store.run(f"DELETE FROM item WHERE id < {ROWS // 2}", f"UPDATE item SET name = 'new' WHERE id > {ROWS - 100}")
        until(lambda: endpoint.status()["log"]["transactions"] == 1, "the change in the log")
        command = [sys.executable, "-m", "changesource_cli", "compact", "--state", str(state), "--json"]
        with ChildProcess([*command, "--master", CLUSTER], env={"PYTHONPATH": str(REPOSITORY)}) as job:
            executors = until(lambda: _executors(job), "an executor", seconds=SPARK_SECONDS)
            kill(executors[0])
            assert job.wait(SPARK_SECONDS) == 0, job.tail()
            done = json.loads(job.lines[-1])["compacted"]
        assert done["registered"] is True
        assert endpoint.status()["log"]["snapshot"] == done["watermark"]
        with RawConsumer(endpoint.stream_url, keep=True) as consumer:
            names: dict[int, str] = {}
            while len(names) < ROWS // 2:
                changes = [message[1] for message in consumer.messages() if message[0] == "data"]
                rows = [change["new"] for change in changes if change["tag"] == "insert" and _is_item(change)]
                names |= {row["id"]: row["name"] for row in rows}
        assert names == {row[0]: row[1] for row in store.rows("item")}
        assert endpoint.stop() == 0


def _executors(job: ChildProcess) -> list[int]:
    return [pid for pid in job.tree() if EXECUTOR in command_line(pid)]


def _is_item(change: dict[str, dict[str, str]]) -> bool:
    return change["relation"]["name"] == "item"
