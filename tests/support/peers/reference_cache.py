"""Our cache, run as its users run it: `changesource cache`, configured by zero-cache's variables.

The same calls as `ZeroCache`, so that a test can be run against either.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.child_process import ChildProcess
from tests.support.ports import free_port

SYNC_SECONDS = 120.0


class ReferenceCache:
    """One installation: a replica, client records and a port that survive its restarts."""

    def __init__(
        self, source_url: str, folder: Path, *, app_id: str = "zero", settings: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.replica_file = folder / f"{app_id}-our-replica.db"
        self.runs: list[ChildProcess] = []
        self._env = {
            "ZERO_UPSTREAM_TYPE": "custom",
            "ZERO_UPSTREAM_DB": source_url,
            "ZERO_REPLICA_FILE": str(self.replica_file),
            "ZERO_APP_ID": app_id,
            "ZERO_PORT": str(self.port),
            "CHANGESOURCE_CACHE_HOST": "127.0.0.1",
            **(settings or {}),
        }

    def __enter__(self) -> ReferenceCache:
        return self

    def __exit__(self, *_: object) -> None:
        if self.runs and self.process.running:
            self.process.kill()

    @property
    def process(self) -> ChildProcess:
        """The current (or last) run."""
        return self.runs[-1]

    def set(self, variable: str, value: str) -> None:
        """Give the next run another setting."""
        self._env[variable] = value

    def start(self, *, seconds: float = SYNC_SECONDS) -> ReferenceCache:
        """Start and wait until clients can connect."""
        self.launch()
        self.process.wait_for_line('"event": "ready"', seconds=seconds)
        return self

    def launch(self) -> ChildProcess:
        """Start without waiting."""
        command = [sys.executable, "-m", "changesource_cli", "cache", "--json"]
        self.runs.append(ChildProcess(command, env=self._env, cwd=Path(__file__).parents[3]))
        return self.process

    def stop(self) -> int:
        """Graceful: SIGTERM and wait."""
        return self.process.stop()

    def kill(self) -> int:
        """SIGKILL of every process of the tree."""
        return self.process.kill()

    def status(self) -> dict[str, Any]:
        """The document of `/statusz`."""
        with urllib.request.urlopen(f"{self.url}/statusz", timeout=60) as answer:
            document: dict[str, Any] = json.load(answer)
            return document
