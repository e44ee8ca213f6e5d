"""`changesource serve` on Spark, with its processes by the part they play: endpoint, driver, task, executors.

Contract: parts are found as an operator would find them, from `/statusz` and the process table; a part that is
not there at this moment (starting, just killed) is None or an empty list.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.peers.serving import Serving
from tests.support.waiting import until

LOCAL = "local[2]"
CLUSTER = "local-cluster[2,1,1024]"
#: A busy machine needs a while for three Java processes.
SPARK_SECONDS = 240
#: Tests start Spark often and keep it busy for seconds: quick compilation is worth more than good.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_START = ("--conf", f"spark.driver.extraJavaOptions={QUICK_JAVA}")
#: Their tables are small: more shuffled partitions would only cost time.
FEW_PARTITIONS = ("--conf", "spark.sql.shuffle.partitions=2")
EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkServing(Serving):
    """An endpoint whose pipeline runs on a Spark master."""

    def __init__(
        self,
        adapter: str,
        settings: Mapping[str, str],
        state: Path,
        *,
        master: str = LOCAL,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        spark = ("--permissions", "allow-all", "--runner", "spark", "--master", master, *QUICK_START)
        super().__init__(adapter, settings, state, options=(*spark, *options), env=env)

    def stage(self) -> dict[str, Any]:
        """What the pipeline reports; empty while the endpoint is down or nothing was reported yet."""
        status, body = self.get("/statusz")
        return dict(json.loads(body)["stages"].get("pipeline", {})) if status == 200 and body else {}

    def driver(self) -> int | None:
        """The driver's process, from its start on."""
        return int(found) if (found := self.status()["pipeline"]["pid"]) else None

    def task(self) -> int | None:
        """The Python process of the resident task, while it follows the store."""
        stage = self.stage()
        pid = int(stage.get("pid") or 0)
        is_there = stage.get("state") == "tailing" and pid != self.driver() and pid in self.process.tree()
        return pid if is_there else None

    def executors(self) -> list[int]:
        """The Java processes of a cluster's executors."""
        return [pid for pid in self.process.tree() if EXECUTOR in command_line(pid)]

    def executor_of(self, pid: int) -> int | None:
        """The executor among the ancestors of a process."""
        executors = self.executors()
        while pid > 1 and pid not in executors:
            pid = _parent(pid)
        return pid if pid in executors else None

    def kill_endpoint_alone(self) -> None:
        """SIGKILL of `serve`; its pipeline must notice by itself and leave nothing behind."""
        process = self.process
        process.send(signal.SIGKILL)
        process.wait()
        until(lambda: not process.tree(), "the pipeline to end after its endpoint", seconds=SPARK_SECONDS)


def kill(pid: int) -> None:
    """SIGKILL; one that has just ended by itself is fine."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def command_line(pid: int) -> bytes:
    """What a process was started with; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
