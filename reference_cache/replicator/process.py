"""The replicator in a process of its own, so that writing the replica and serving clients each have a processor.

    replicator = ReplicatorProcess(settings)
    replicator.on_version(notify)             # on the event loop of `run`
    await replicator.run()                    # until cancelled; the process ends with it

The same calls as `Replicator`. The two sides exchange JSON lines: settings, then what was read, go in on standard
input; versions, status and log lines come out on standard output. A child whose standard input ends has lost its
parent and ends too. A child that dies is started again; the replica is whole at any moment, so nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import orjson

from reference_cache.replica.stored_catalog import ReplicaState
from reference_cache.replicator.replicator import OnVersion
from reference_cache.replicator.settings import ReplicatorSettings
from reference_cache.replicator.status import ReplicatorStatus
from service_kit import child_process
from service_kit.backoff import reconnect_backoff

STOP_SECONDS = 10.0
UNUSABLE_EXIT = 3
"""The child's exit code when the replica file is not its to write; starting again would not help."""

_LOG = logging.getLogger("changesource.replicator")
_ROOT = Path(__file__).parents[2]


class ReplicatorFailed(RuntimeError):
    """The replicator cannot run; the message says why."""

    code = "replicator-failed"


class ReplicatorProcess:
    """A replicator elsewhere. Invariant: at most one child runs, and none once `run` has returned."""

    def __init__(self, settings: ReplicatorSettings) -> None:
        self._settings = settings
        self._listeners: list[OnVersion] = []
        self._status = ReplicatorStatus()
        self._child: asyncio.subprocess.Process | None = None
        self._backoff = reconnect_backoff()

    @property
    def pid(self) -> int | None:
        """The process id of the child, if one runs."""
        return None if self._child is None else self._child.pid

    def on_version(self, callback: OnVersion) -> None:
        """As `Replicator.on_version`."""
        self._listeners.append(callback)

    def status(self) -> ReplicatorStatus:
        """As the child last told."""
        return self._status

    def forget_changes(self, upto: str) -> None:
        """As `Replicator.forget_changes`."""
        self._tell({"forget": upto})

    async def run(self) -> None:
        """Keep a child running until cancelled; `ReplicatorFailed` if it says that it never can."""
        while True:
            code = await self._run_child()
            if code == UNUSABLE_EXIT:
                raise ReplicatorFailed(self._status.error or "the replica cannot be used")
            _LOG.warning("replicator ended", extra={"fields": {"code": code}})
            self._status.phase = "waiting"
            self._status.error = f"the replicator's process ended with {code}"
            await asyncio.sleep(self._backoff.seconds())

    async def _run_child(self) -> int:
        self._child = child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "reference_cache.replicator"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=_ROOT,
        )
        try:
            self._tell({"settings": self._settings.to_json()})
            assert child.stdout is not None
            while line := await child.stdout.readline():
                self._hear(orjson.loads(line))
            return await child.wait()
        finally:
            self._child = None
            if child.stdin is not None:
                child.stdin.close()
            await child_process.end(child, STOP_SECONDS)

    def _tell(self, message: dict[str, Any]) -> None:
        child = self._child
        if child is not None and child.stdin is not None and not child.stdin.is_closing():
            child.stdin.write(orjson.dumps(message) + b"\n")

    def _hear(self, message: dict[str, Any]) -> None:
        match message:
            case {"version": dict() as state}:
                self._backoff.reset()
                for listener in self._listeners:
                    listener(ReplicaState(**state))
            case {"status": dict() as status}:
                self._status = ReplicatorStatus(**status)
            case {"log": str() as what, "level": int() as level, "fields": dict() as fields}:
                _LOG.log(level, what, extra={"fields": fields})
