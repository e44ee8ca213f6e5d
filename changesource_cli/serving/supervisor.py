"""The pipeline's process, kept running beside the endpoint.

The child runs the adapter; it is told what to do by its command line and ends by itself when its standard input closes,
so it never outlives us, not even after SIGKILL. If it exits, it is started again after a delay that doubles up to a
limit and falls back once a run lasted. The endpoint serves the retained log in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from changesource_cli.serving.child_output import ChildOutput
from changesource_sdk.errors import AdapterError, ConfigurationError, StateError
from changesource_sdk.observe.logs import event, logger

log = logger("pipeline")

FIRST_DELAY, LAST_DELAY = 0.5, 30.0
#: A run this long counts as healthy: the next failure starts again from the first delay.
HEALTHY_AFTER = 60.0
#: The child's exit code for a configuration that cannot work.
USAGE = ConfigurationError.exit_code
#: Exit codes that come with a message of their own.
EXPLAINED = (0, USAGE, AdapterError.exit_code, StateError.exit_code)


@dataclass(slots=True)
class PipelineHealth:
    """What `/statusz` says of the child. Invariant: `pid` is None exactly while no child runs."""

    pid: int | None = None
    starts: int = 0
    last_exit: int | None = None
    retry_delay: float = 0.0

    def as_json(self) -> dict[str, object]:
        return {
            "running": self.pid is not None,
            "pid": self.pid,
            "starts": self.starts,
            "lastExit": self.last_exit,
            "retryDelay": self.retry_delay,
        }


class Supervisor:
    """Keeps one child alive until told to stop. Invariant: at most one child runs at a time."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], *, grace: float) -> None:
        self.health = PipelineHealth()
        self._command = command
        self._environment = environment
        self._grace = grace
        self._stopping = asyncio.Event()
        #: Whether the endpoint has something to serve without a pipeline; it is then worth trying for ever.
        self.is_served: Callable[[], bool] = lambda: False

    def stop(self) -> None:
        """Ask the child to end at a transaction boundary; `run` then returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Start the child, and start it again whenever it ends, until `stop` or until its settings are refused."""
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            began = monotonic()
            code = await self._run_once()
            self.health.last_exit = code
            if self._stopping.is_set() or self._is_final(code):
                return
            if monotonic() - began > HEALTHY_AFTER:
                delay = FIRST_DELAY
            self.health.retry_delay = delay
            event(log, logging.WARNING, "pipeline ended, starting it again", exit=code, delay=delay)
            await self._wait_for_stop(delay)
            delay = min(delay * 2, LAST_DELAY)

    def _is_final(self, code: int) -> bool:
        # Refused settings stay refused; only a pipeline that has worked before is worth another try.
        return code == USAGE and self.health.starts == 1 and not self.is_served()

    async def _run_once(self) -> int:
        output = ChildOutput()
        child = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stderr=PIPE, env=self._environment, start_new_session=True
        )
        assert child.stderr is not None
        relay = asyncio.ensure_future(output.relay(child.stderr))
        code = await self._wait_for(child)
        # A grandchild may hold the pipe open; what matters was said before the child ended.
        await asyncio.wait((relay,), timeout=1.0)
        relay.cancel()
        if code not in EXPLAINED and not self._stopping.is_set():
            output.tell_crash()
        return code

    async def _wait_for(self, child: Process) -> int:
        self.health.pid = child.pid
        self.health.starts += 1
        event(log, logging.DEBUG, "pipeline started", pid=child.pid)
        exited = asyncio.ensure_future(child.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((exited, stopping), return_when=asyncio.FIRST_COMPLETED)
            return await exited if exited.done() else await self._end(child, exited)
        finally:
            stopping.cancel()
            if not exited.done():
                _send(child.kill)
                await exited
            self.health.pid = None

    async def _end(self, child: Process, exited: asyncio.Future[int]) -> int:
        _send(child.terminate)
        try:
            return await asyncio.wait_for(asyncio.shield(exited), self._grace)
        except TimeoutError:
            event(log, logging.WARNING, "pipeline did not stop in time, killing it", grace=self._grace)
            _send(child.kill)
            return await exited

    async def _wait_for_stop(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            pass


def _send(signal: Callable[[], None]) -> None:
    """Signal a child, unless it has just ended by itself."""
    with suppress(ProcessLookupError):
        signal()
