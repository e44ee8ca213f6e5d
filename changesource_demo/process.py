"""A child process that can be stopped and started while others run. The demo has four of them.

The command prints JSON events, one per line, and is ready when it prints the event named `ready_event`. It gets the
port of its first start again at every later one, so the other processes find it. Standard error goes to a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from changesource_sdk.errors import EndpointError
from service_kit import child_process

State = Literal["stopped", "starting", "running", "stopping"]
GRACE_SECONDS = 20.0
"""Between SIGTERM and SIGKILL."""
_OUR_VARIABLES = ("ZERO_", "CHANGESOURCE_")


class ManagedProcess:
    """A command, run by at most one process at a time. Used by the event loop's thread only.

    Invariant: `state` is "stopped" exactly while no process is alive.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        *,
        settings: Callable[[int], Mapping[str, str]] = lambda _: {},
        ready_event: str = "listening",
        output: Path,
    ) -> None:
        """`command` and `settings` (environment variables) get the port to use; 0 is any free one."""
        self.name = name
        # What the process does; written by `_set_state`.
        self.state: State = "stopped"
        # When `state` last changed, in epoch seconds; written by `_set_state`.
        self.since = time.time()
        # Port of the last event that had one, 0 before the first start; written by `_take_event`.
        self.port = 0
        self._command = command
        self._settings = settings
        self._ready_event = ready_event
        self._output = output
        # Held during a start or a stop, so that they come one after the other.
        self._lock = asyncio.Lock()
        # The process, from `start` until `_end` has seen it exit; None otherwise.
        self._process: Process | None = None
        # The task that runs `_follow` for `_process`; set and cleared together with it.
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process unless it runs; return when it is ready. Raises `EndpointError` if it exits before."""
        async with self._lock:
            if self.state == "running":
                return
            self._set_state("starting")
            environment = {key: value for key, value in os.environ.items() if not key.startswith(_OUR_VARIABLES)}
            environment |= self._settings(self.port)
            ready = asyncio.Event()
            with self._output.open("ab") as output:
                # In its own session, so that Ctrl-C reaches only this process, which stops the others in order.
                self._process = await asyncio.create_subprocess_exec(
                    *self._command(self.port), stdout=PIPE, stderr=output, env=environment, start_new_session=True
                )
            self._watch = asyncio.create_task(self._follow(self._process, ready))
            await self._wait_until_ready(self._watch, ready)

    async def stop(self) -> None:
        """Stop the process if there is one; return when it has exited."""
        async with self._lock:
            await self._end()

    async def _wait_until_ready(self, watch: asyncio.Task[None], ready: asyncio.Event) -> None:
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait((waiting, watch), return_when=asyncio.FIRST_COMPLETED)
            if not ready.is_set():
                raise EndpointError("demo-stage", f"the {self.name} did not start", fix=f"see {self._output}")
        except BaseException:
            await self._end()
            raise
        finally:
            waiting.cancel()
        self._set_state("running")

    async def _end(self) -> None:
        if self._process is None or self._watch is None:
            return
        if self.state != "stopped":
            self._set_state("stopping")
        await child_process.end(self._process, GRACE_SECONDS)
        await self._watch
        self._process = self._watch = None

    async def _follow(self, process: Process, ready: asyncio.Event) -> None:
        """Read the events of a process until it exits."""
        events = asyncio.create_task(self._read_events(process, ready))
        await process.wait()
        # Do not wait for the end of the pipe: children of the process may hold it open a little longer.
        events.cancel()
        self._set_state("stopped")

    async def _read_events(self, process: Process, ready: asyncio.Event) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            with suppress(ValueError):
                self._take_event(json.loads(line), ready)

    def _take_event(self, event: object, ready: asyncio.Event) -> None:
        if isinstance(event, dict):
            self.port = int(event.get("port", self.port))
            if event.get("event") == self._ready_event:
                ready.set()

    def _set_state(self, state: State) -> None:
        self.state = state
        self.since = time.time()
