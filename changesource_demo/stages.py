"""The processes of the demo, each of which can be stopped and started again while the others go on.

A stage is a command that prints JSON events, one per line, and is ready with the event named `ready_event`. It keeps
the port it was first given, so that its neighbours find it again. Everything else it says goes to a file.
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

State = Literal["stopped", "starting", "running", "stopping"]
GRACE_SECONDS = 20.0
_OURS = ("ZERO_", "CHANGESOURCE_")


class Stage:
    """One process at a time. Invariant: `state` is "stopped" exactly while no process of it is alive."""

    def __init__(
        self,
        name: str,
        command: Callable[[int], Sequence[str]],
        *,
        settings: Callable[[int], Mapping[str, str]] = lambda _: {},
        ready_event: str = "listening",
        output: Path,
    ) -> None:
        self.name = name
        self.state: State = "stopped"
        self.since = time.time()
        self.port = 0
        self._command = command
        self._settings = settings
        self._ready_event = ready_event
        self._output = output
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it unless it runs; returns when it is ready. Raises `EndpointError` if it ends before that."""
        async with self._turn:
            if self.state == "running":
                return
            self._become("starting")
            environment = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
            environment |= self._settings(self.port)
            ready = asyncio.Event()
            with self._output.open("ab") as said:
                # A session of its own: Ctrl-C is for us, and we end the stages in order.
                self._process = await asyncio.create_subprocess_exec(
                    *self._command(self.port), stdout=PIPE, stderr=said, env=environment, start_new_session=True
                )
            self._watch = asyncio.create_task(self._follow(self._process, ready))
            await self._until_ready(self._watch, ready)

    async def stop(self) -> None:
        """Stop it unless it is stopped; returns when the process has gone."""
        async with self._turn:
            await self._end()

    async def _until_ready(self, watch: asyncio.Task[None], ready: asyncio.Event) -> None:
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
        self._become("running")

    async def _end(self) -> None:
        if self._process is None or self._watch is None:
            return
        if self.state != "stopped":
            self._become("stopping")
        with suppress(ProcessLookupError):
            self._process.terminate()
        await asyncio.wait((self._watch,), timeout=GRACE_SECONDS)
        if not self._watch.done():
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._watch
        self._process = self._watch = None

    async def _follow(self, process: Process, ready: asyncio.Event) -> None:
        """Take its events until it has gone."""
        events = asyncio.create_task(self._read(process, ready))
        await process.wait()
        # Its children may hold the pipe open a little longer; what matters was said before.
        events.cancel()
        self._become("stopped")

    async def _read(self, process: Process, ready: asyncio.Event) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            with suppress(ValueError):
                self._take(json.loads(line), ready)

    def _take(self, event: object, ready: asyncio.Event) -> None:
        if isinstance(event, dict):
            self.port = int(event.get("port", self.port))
            if event.get("event") == self._ready_event:
                ready.set()

    def _become(self, state: State) -> None:
        self.state = state
        self.since = time.time()
