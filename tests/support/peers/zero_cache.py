"""The official zero-cache, run as its users run it, for tests and benchmarks.

Place in the flow: it connects to a change source given by URL, keeps its replica in a folder of ours and its
records in a scratch Postgres database. Contract: `start()` returns when the server takes clients (so the
initial sync is done); `stop()` and `kill()` end the whole process tree; starting again resumes on the same
replica and records. With `supervised=True` a run that ends for a reset (exit code 14) or a failed initial sync
(255) is started again, as a production supervisor would.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.support.child_process import ChildProcess
from tests.support.peers.replica import Replica
from tests.support.ports import free_port
from tests.support.tools import node, zero_package

READY_LINE = "zero-cache ready"
RESET_EXIT = 14
FAILED_EXIT = 255
SYNC_SECONDS = 120
QUIET = {
    "NODE_ENV": "production",
    "ZERO_ADMIN_PASSWORD": "changesource",
    "ZERO_ENABLE_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "ZERO_NUM_SYNC_WORKERS": "1",
    "ZERO_LOG_LEVEL": "info",
    "ZERO_LOG_FORMAT": "json",
    "ZERO_CVR_MAX_CONNS": "4",
    "ZERO_CHANGE_MAX_CONNS": "3",
    "ZERO_UPSTREAM_MAX_CONNS": "1",
}


def own_task_id() -> dict[str, str]:
    """A name for one run. Without one zero-cache makes it up, and does not start if it happens to begin with a dash."""
    return {"ZERO_TASK_ID": secrets.token_hex(8)}


class ZeroCache:
    """One zero-cache installation: a replica, a database and ports that survive its restarts."""

    def __init__(
        self,
        source_url: str,
        database_url: str,
        folder: Path,
        *,
        app_id: str = "zero",
        supervised: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database_url = database_url
        self.replica = Replica(folder / f"{app_id}-replica.db")
        self.exits: list[int] = []
        self._supervised = supervised
        self._stopping = False
        self._started = threading.Condition()
        self.runs: list[ChildProcess] = []
        self._env = {
            **QUIET,
            "ZERO_UPSTREAM_TYPE": "custom",
            "ZERO_UPSTREAM_DB": source_url,
            "ZERO_CVR_DB": database_url,
            "ZERO_CHANGE_DB": database_url,
            "ZERO_REPLICA_FILE": str(self.replica.path),
            "ZERO_APP_ID": app_id,
            "ZERO_PORT": str(self.port),
            "ZERO_CHANGE_STREAMER_PORT": str(free_port()),
            **(settings or {}),
        }

    def __enter__(self) -> ZeroCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process(self) -> ChildProcess:
        """The current (or last) run."""
        return self.runs[-1]

    def start(self, *, seconds: float = SYNC_SECONDS) -> ZeroCache:
        """Start and wait until clients can connect."""
        self.launch()
        self.wait_until_ready(seconds=seconds)
        return self

    def launch(self) -> ChildProcess:
        """Start without waiting."""
        self._stopping = False
        return self._spawn()

    def wait_until_ready(self, *, run: int | None = None, seconds: float = SYNC_SECONDS) -> None:
        """Wait until run number `run` (default: the newest) takes clients; a supervised one may take several runs."""
        number = len(self.runs) - 1 if run is None else run
        while True:
            self.wait_for_run(number, seconds=seconds)
            try:
                self.runs[number].wait_for_line(READY_LINE, seconds=seconds)
                return
            except AssertionError:
                if not (self._supervised and self.runs[number].code in (RESET_EXIT, FAILED_EXIT)):
                    raise
                number += 1

    def wait_for_run(self, number: int, *, seconds: float = SYNC_SECONDS) -> None:
        """Wait until run `number` (counted from 0) has been started."""
        with self._started:
            if not self._started.wait_for(lambda: len(self.runs) > number, seconds):
                raise AssertionError(f"run {number} was not started; exits so far {self.exits}\n{self.process.tail()}")

    def stop(self) -> int:
        """Graceful: SIGTERM and wait."""
        self._stopping = True
        return self.process.stop()

    def kill(self) -> int:
        """SIGKILL of every process of the tree."""
        self._stopping = True
        return self.process.kill()

    def close(self) -> None:
        self._stopping = True
        if self.runs and self.process.running:
            self.process.kill()

    def _spawn(self) -> ChildProcess:
        command = [node(), zero_package() / "out" / "zero" / "src" / "cli.js"]
        with self._started:
            env = self._env | own_task_id()
            child = ChildProcess(command, env=env, cwd=self.replica.path.parent, on_exit=self._ended)
            self.runs.append(child)
            self._started.notify_all()
            return child

    def _ended(self, code: int) -> None:
        self.exits.append(code)
        if self._supervised and not self._stopping and code in (RESET_EXIT, FAILED_EXIT):
            self._spawn()
