"""Runs the replicator in a process of its own, so that writing the replica and serving clients each have a CPU.

    replicator = ReplicatorProcess(settings)
    replicator.on_version(notify)             # on the event loop of `run`
    await replicator.run()                    # until cancelled; the process ends with it

It has the same methods as `Replicator`. Parent and child exchange JSON lines: the parent writes the settings and then
the read versions to the child's standard input; the child writes versions, status and log lines to standard output. A
child whose standard input closes has lost its parent and exits. A child that dies is restarted; nothing is lost,
because the replica is consistent at any moment.
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
from service_kit.logs import event, logger

STOP_SECONDS = 10.0
UNUSABLE_EXIT = 3
"""The child's exit code for an unusable replica file; a restart would not help."""

log = logger("replicator")
_ROOT = Path(__file__).parents[2]


class ReplicatorFailed(RuntimeError):
    """The replicator cannot run; the message says why."""

    code = "replicator-failed"


class ReplicatorProcess:
    """The parent's side. Invariant: at most one child runs, and none after `run` has ended."""

    def __init__(self, settings: ReplicatorSettings) -> None:
        self._settings = settings
        # Written by `on_version`.
        self._listeners: list[OnVersion] = []
        # As last received from the child; replaced by `_receive`, changed by `run` when a child has ended.
        self._status = ReplicatorStatus()
        # Set while a child runs.
        self._child: asyncio.subprocess.Process | None = None
        self._backoff = reconnect_backoff()

    @property
    def pid(self) -> int | None:
        """The process id of the child, if one runs."""
        return None if self._child is None else self._child.pid

    def on_version(self, callback: OnVersion) -> None:
        """See `Replicator.on_version`."""
        self._listeners.append(callback)

    def status(self) -> ReplicatorStatus:
        """The status that the child last sent; at most half a second old while it runs."""
        return self._status

    def forget_changes(self, upto: str) -> None:
        """See `Replicator.forget_changes`."""
        self._send({"forget": upto})

    async def run(self) -> None:
        """Keep a child running until cancelled; raises `ReplicatorFailed` if the replica file is unusable."""
        while True:
            code = await self._run_child()
            if code == UNUSABLE_EXIT:
                raise ReplicatorFailed(self._status.error or "the replica cannot be used")
            event(log, logging.WARNING, "replicator ended", code=code)
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
            self._send({"settings": self._settings.to_json()})
            assert child.stdout is not None
            while line := await child.stdout.readline():
                self._receive(orjson.loads(line))
            return await child.wait()
        finally:
            self._child = None
            if child.stdin is not None:
                child.stdin.close()
            await child_process.end(child, STOP_SECONDS)

    def _send(self, message: dict[str, Any]) -> None:
        child = self._child
        if child is not None and child.stdin is not None and not child.stdin.is_closing():
            child.stdin.write(orjson.dumps(message) + b"\n")

    def _receive(self, message: dict[str, Any]) -> None:
        match message:
            case {"version": dict() as state}:
                self._backoff.reset()
                for listener in self._listeners:
                    listener(ReplicaState(**state))
            case {"status": dict() as status}:
                self._status = ReplicatorStatus(**status)
            case {"log": str() as what, "level": int() as level, "fields": dict() as fields}:
                event(log, level, what, **fields)
