"""Our side, run as its users run it: `changesource serve …` as a process tree, watched over HTTP.

Contract: `start()` returns when `/readyz` says that a consumer can be served; the same object can be stopped or
killed and started again on the same state and port. `stream_url` is what zero-cache gets as `ZERO_UPSTREAM_DB`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from tests.support.child_process import ChildProcess
from tests.support.ports import free_port
from tests.support.tools import REPOSITORY
from tests.support.waiting import until

READY_SECONDS = 240
UPGRADE = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13", "Upgrade": "websocket"}


class Serving:
    """One installation of the endpoint: adapter settings, state folder and port survive its restarts."""

    def __init__(
        self,
        adapter: str,
        settings: Mapping[str, str],
        state: Path,
        *,
        port: int | None = None,
        api_key: str | None = None,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.state = state
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._query = "" if api_key is None else f"?apiKey={quote(api_key)}"
        self.stream_url = f"ws://127.0.0.1:{self.port}/changes/v0/stream{self._query}"
        self.runs: list[ChildProcess] = []
        self._env = {"PYTHONPATH": str(REPOSITORY), "CHANGESOURCE_RUNNER": "inline", **(env or {})}
        if api_key is not None:
            options = [*options, "--api-key", api_key]
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        address = ["--listen", f"127.0.0.1:{self.port}", "--state", str(state)]
        named = [adapter] if adapter else []  # else it is in the configuration file
        self._command = [sys.executable, "-m", "changesource_cli", "serve", *named, *sets, *address, *options]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.runs and self.process.running:
            self.process.kill()

    @property
    def process(self) -> ChildProcess:
        """The current (or last) run."""
        return self.runs[-1]

    def launch(self, *, limits: Mapping[int, int] | None = None, wrapper: Sequence[str] = ()) -> ChildProcess:
        """Start without waiting; `limits` are soft resource limits, `wrapper` is a program to run the command under."""
        self.runs.append(ChildProcess([*wrapper, *self._command], env=self._env, limits=limits))
        return self.process

    def start(self, *, seconds: float = READY_SECONDS, limits: Mapping[int, int] | None = None) -> Self:
        """Start and wait until a consumer can be served."""
        self.launch(limits=limits)
        until(self.ready, f"{self.url}/readyz", seconds=seconds, alive=self._check)
        return self

    def stop(self) -> int:
        """Graceful: SIGTERM and wait for both processes."""
        return self.process.stop()

    def kill(self) -> int:
        """SIGKILL of every process of the tree."""
        return self.process.kill()

    def pipeline_pids(self) -> list[int]:
        """The processes that run the adapter."""
        return [pid for pid in self.process.tree() if pid != self.process.pid]

    def kill_pipeline(self) -> list[int]:
        """SIGKILL the adapter's processes alone; the endpoint stays."""
        pids = self.pipeline_pids()
        for pid in pids:
            # One of them may be gone with the one that was killed before it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pids

    def ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def upgrade(self, path: str) -> tuple[int, str]:
        """Status and body of the answer to a WebSocket handshake at this path."""
        request = urllib.request.Request(self.url + path, headers=UPGRADE)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 while nothing listens."""
        try:
            with urllib.request.urlopen(self.url + path + self._query, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0, ""

    def status(self) -> dict[str, Any]:
        """The document of `/statusz`."""
        document: dict[str, Any] = json.loads(until(lambda: self.get("/statusz")[1], "/statusz", alive=self._check))
        return document

    def _check(self) -> None:
        assert self.process.running, f"serve ended with {self.process.code}:\n{self.process.tail()}"
